"""The executables: one file per node, wiring only."""
