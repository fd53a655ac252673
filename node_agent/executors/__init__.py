"""How a pod that was ordered out is made to go: killed, asked to end, stopped, or handed over.

`way` chooses, `cri` speaks to the container runtime (`cri_messages` is what is said), `going` keeps
what has begun. `node_agent.evictions` calls these; the kill itself is `node_agent.actuators.evict`.
"""
