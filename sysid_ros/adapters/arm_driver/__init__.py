"""Parts of the node `arm_driver`: parameters of its connections, samples, scene, topics of an arm."""
