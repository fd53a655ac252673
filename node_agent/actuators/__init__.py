"""What the node agent can do to a machine: one knob a file, each `plan` (pure) and `apply`.

`node_agent.obey` calls these. Every write goes through `subtree.Subtree`, which cannot leave the
best-effort subtree; every act on a pod takes a `pods.BestEffortPod`, which only inventory and path
together can make.
"""
