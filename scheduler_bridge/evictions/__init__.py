"""Pods that are to go through the Eviction API: who, when, how fast, and what became of each.

`queue` and `budget` decide when, `victim` whether at all, `api` asks, `executor` runs it;
`migrate` finds pods of hot nodes by the laws of `agents.placement`. `cli` starts it.
"""
