"""Exciting trajectories: motions that make the parameters of a payload visible."""
