"""Streaming estimation of a payload: momentum windows, error budget, fit and guaranteed bounds."""
