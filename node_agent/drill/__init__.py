"""A drill: suppression, memory's last gate and the kernel's own killer, played on test pods.

`slackwater node drill` runs it before a machine is trusted, and after a change to it. A real agent
works on groups that the drill makes for itself, with work of its own in them; no broker is needed
and no other group is touched.
"""
