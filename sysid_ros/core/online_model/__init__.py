"""A dynamic model that is fitted while the arm works, and the gate before it is used for control (SVA)."""
