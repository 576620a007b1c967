"""The executables of a free-floating robot: one file per node, wiring only."""
