"""What can go wrong in a lab run through no fault of the agent under test."""


class LabError(Exception):
    """The run cannot go on; the message is one line and says why."""
