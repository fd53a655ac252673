"""The rules of the house as tests: sizes, words, imports, float reductions, thresholds, packaging."""
