"""An FRI controller with a simulated LBR, for any FRI client."""
