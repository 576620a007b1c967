"""The receding-horizon planner: searches with sampled constraints, returns what has been bounded and proven."""
