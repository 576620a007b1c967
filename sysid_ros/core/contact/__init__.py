"""External torques and contact: what neither the model nor its uncertainty explains."""
