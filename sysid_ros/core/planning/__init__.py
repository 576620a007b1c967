"""Trajectories, their certificates, and the planner that checks them."""
