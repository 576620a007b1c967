"""Settings, target and nuisance parameters of an estimation, bounds of the parameters, and the result."""
