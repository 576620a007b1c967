"""What is estimated, what is known of it beforehand, and the result."""
