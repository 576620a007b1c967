"""The physically consistent point estimate."""
