"""Whether this node can run Lastcall, check by check."""
