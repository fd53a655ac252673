"""Many nodes in one process, without a kernel: real traces, a model, the node agent's own rules.

`slackwater simulate` closes the loop for a fleet that is not there, and loads the benchmarks.
"""
