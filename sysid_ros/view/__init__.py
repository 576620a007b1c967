"""The arm and the bounds of its payload in a browser, live or from a recording; ROS is not needed."""
