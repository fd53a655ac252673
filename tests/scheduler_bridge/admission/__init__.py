"""Admission without a cluster: its pure parts, its files, its command line."""
