"""The DaemonSet's process."""
