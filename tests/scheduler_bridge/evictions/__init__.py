"""The evictor: its pure parts."""
