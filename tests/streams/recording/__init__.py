"""Recordings: what is written is what was there, and what is damaged harms only itself."""
