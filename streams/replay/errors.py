"""Why nothing can be replayed. Raised all over `streams.replay`, shown by the commands."""


class CannotReplay(Exception):
    """What is wanted cannot be folded from what there is; the message says why and what to do."""

    says_what_to_do = True
