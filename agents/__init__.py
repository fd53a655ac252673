"""What is decided: pure functions over numpy arrays, one decider a file. No I/O, no clock.

An *agent* here is a decider; the Faust coroutines that feed it live in `streams`.
"""
