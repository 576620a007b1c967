"""What the node `arm_driver` needs: parameters of its connections, samples, scene, topics of an arm."""
