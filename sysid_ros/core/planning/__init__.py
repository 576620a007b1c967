"""The receding-horizon planner: searches with sampled constraints, returns only bounded and proven motions."""
