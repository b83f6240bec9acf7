"""What the agent costs: `python -m bench` prints the numbers of bench/README.md."""
