"""What nodes need beyond wiring, of ROS and of drivers, emulation or reports; never imported from below."""
