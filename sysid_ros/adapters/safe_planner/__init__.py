"""Parts of the node `safe_planner`: its parameters, the scene, plan requests and their answers."""
