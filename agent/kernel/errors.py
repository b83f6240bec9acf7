"""What keeps the kernel side from running, as one line that says what to do."""


class KernelSideError(Exception):
    """The programs cannot run on this node; the message is one line with a remedy."""
