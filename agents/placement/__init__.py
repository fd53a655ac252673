"""Placement arithmetic: where a pod goes, which node is relieved, what a quota is worth.

Nothing in `agents.step` calls it: the scheduler bridge's extender (load-aware filter and score),
its descheduler (low node load) and its admission (elastic quotas) do; see issue 5.
"""
