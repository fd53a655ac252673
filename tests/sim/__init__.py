"""A whole small cluster in one thread: real law, engine, lease, journal and reconcile; a fake log
and fake kernels; seeded faults; named invariants. Start at `tests.sim.cluster`.
"""
