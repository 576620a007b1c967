"""Kinova Gen3 over Kortex: wire format, client, and an emulator of the arm's base."""
