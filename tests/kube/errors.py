"""The one error of the test cluster."""


class KubeError(Exception):
    """The cluster cannot run. The message says what is wrong and what to do about it."""


class MissingError(KubeError):
    """Something that the cluster is made of is not on this machine."""
