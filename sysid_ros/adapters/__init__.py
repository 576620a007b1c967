"""The content of nodes beyond wiring, of ROS, drivers and reports; never imported from below."""
