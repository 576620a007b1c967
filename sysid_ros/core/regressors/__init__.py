"""Regressors: dynamics as matrices times parameters, in batches over samples."""
