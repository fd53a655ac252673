"""Isolation settings: what each pod's group is given, from its class and the policy.

One knob or family a module, each a pure function over pods or nodes; whoever writes the knobs
(a node agent) calls them. A setting that is not managed is nobody's order: the value that was found
stays, or is put back.
"""
