class NodeError(Exception):
    """The lab's node cannot do what was asked; the message is one line and says what to do."""
