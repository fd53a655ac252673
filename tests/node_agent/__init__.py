"""The node agent: what it measures, on fixture kernels and on the real one, and what it does."""
