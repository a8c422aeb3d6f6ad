"""What the daemon exports about itself: names, values, and whether it is healthy."""
