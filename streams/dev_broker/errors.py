"""The one error of the development broker; raised by its modules, shown as one line by the CLI."""


class BrokerError(Exception):
    """The broker cannot run. The message says what is wrong and what to do about it."""

    says_what_to_do = True
