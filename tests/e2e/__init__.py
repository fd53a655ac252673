"""Whole runs of the product: real broker, real processes, real cgroups."""
