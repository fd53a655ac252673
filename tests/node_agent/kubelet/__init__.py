"""Tests of node_agent/kubelet."""
