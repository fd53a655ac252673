"""Accounts, through records on topics: constructed cases whose sums are known beforehand."""
