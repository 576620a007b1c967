"""The linear programs of the bounds and their interior-point solver."""
