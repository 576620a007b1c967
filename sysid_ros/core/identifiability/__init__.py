"""Which inertial parameters can be known: by the structure of the robot, and from the data at hand."""
