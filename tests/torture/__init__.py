"""What breaks things for real, and counts what came of it."""
