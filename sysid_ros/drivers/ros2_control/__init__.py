"""Any arm that publishes joint states with efforts, and takes effort commands, as arms under ros2_control do."""
