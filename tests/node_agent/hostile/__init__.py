"""Attacks of a tenant on the agent of its node; each stands in the table of docs/security.md."""
