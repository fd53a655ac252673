"""What was recorded gives back what was decided."""
