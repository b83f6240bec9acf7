"""What the agent tells others."""
