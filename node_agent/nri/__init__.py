"""A plugin of the container runtime (NRI of containerd and CRI-O): values before work begins.

`plugin` keeps the connection, `frames` is how it is spoken, `messages` what is said, `births` what
a container gets. Loaded only where `--nri` is given.
"""
