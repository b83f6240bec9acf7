"""What the kernel saw, as typed records."""
