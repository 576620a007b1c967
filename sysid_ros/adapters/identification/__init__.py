"""What the node `identification` needs: the suite as it hears and calls it, and its goals from request to result."""
