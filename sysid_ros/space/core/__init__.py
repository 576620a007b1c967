"""Free-floating robots: momentum model, minimal parameters, exciting trajectories and estimation.

Source: B. Naveen, S. V. Shah, A. K. Misra, "Momentum Model-based Minimal Parameter Identification of a Space Robot"
(here SPACE).
"""
