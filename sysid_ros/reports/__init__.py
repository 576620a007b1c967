"""Files and tables about an identification, recordings, and their readers; no ROS needed."""
