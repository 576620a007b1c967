"""The package in a few calls: what `import sysid_ros` offers, and the estimator run over a recording."""
