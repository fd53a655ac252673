"""Real work in real groups for the demo and the closed-loop bench; nothing here is shipped work."""
