"""The robot: kinematics, limits, nominal parameters and their boxes."""
