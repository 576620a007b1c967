"""Parts of the node ``estimator``."""
