"""Trajectories: Bezier, Fourier, cycloids, and stops along their paths."""
