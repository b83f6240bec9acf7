"""A recording, through the same code as the running agent."""
