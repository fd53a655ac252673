"""A real Kubernetes control plane on loopback, for tests: no kubelet, nodes and pods are objects.

`make kube` builds it, `make test-kube` runs the tests of this folder; docs/kubernetes.md says more.
"""
