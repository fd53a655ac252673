"""Same log, same bytes: cut into other batches, with less of the CPU, with another numpy."""
