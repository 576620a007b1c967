"""Trajectories: Bezier, Fourier, and stops along their paths."""
