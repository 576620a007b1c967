"""Experiments and baselines of the papers; nothing of the product needs them."""
