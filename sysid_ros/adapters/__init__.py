"""What nodes need beyond wiring, of ROS, drivers and reports; never imported from below."""
