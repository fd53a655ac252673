"""What another policy would have done with a recording, and what would have come of it."""
