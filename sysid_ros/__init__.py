"""Finds out what a robot arm holds while it works, with bounds that contain the truth."""
