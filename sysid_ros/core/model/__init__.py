"""The robot: kinematics, limits, and what is known about its parameters."""
