"""Free-flying robots over topics: the driver of a simulated one, and the procedure that identifies any of them."""
