"""A second kernel: the node agent's kernel tests on a machine of pure cgroup v2, under qemu.

`make test-vm` runs `python -m tests.vm`. No root, no KVM and no download of images: the kernel is
Debian's package, the root file system this very Python and its packages.
"""
