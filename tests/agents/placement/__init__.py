"""Placement arithmetic: estimates, filter, score, balance and quotas."""
