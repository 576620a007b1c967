"""The mathematics: a library without ROS, messages, simulators or drivers."""
