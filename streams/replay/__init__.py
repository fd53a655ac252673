"""What is in a recording, folded again: compared, explained, and asked what if."""
