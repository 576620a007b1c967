"""The receding-horizon planner: SAFE-ID (28) over the end positions of degree-5 Bezier motions."""
