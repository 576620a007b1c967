"""The boundary to ROS: messages, parameters, quality of service, the environment, how nodes run."""
