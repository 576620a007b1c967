"""Arms: one interface, the simulated arm, and the torque loop with its process."""
