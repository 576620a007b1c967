"""The arm and what is known of its payload in a browser, live or from a recording; ROS is not needed."""
