"""The rules of the house as tests: sizes, words, imports, reductions, thresholds, packaging."""
