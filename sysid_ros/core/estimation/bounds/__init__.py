"""Guaranteed bounds of the parameters."""
