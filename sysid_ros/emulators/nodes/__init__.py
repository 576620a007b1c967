"""The executables of emulators: one file per node."""
