"""From samples to linear rows with error budgets."""
