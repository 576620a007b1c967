"""What the node `safe_planner` needs: its parameters, the scene, plan requests and their answers."""
