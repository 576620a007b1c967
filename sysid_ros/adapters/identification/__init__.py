"""Parts of the node `identification`: topics and services of the suite, and goals from request to result."""
