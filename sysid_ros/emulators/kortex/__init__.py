"""The base of a Kinova Gen3 with a simulated arm, for any Kortex client."""
