"""Emulated robot controllers, fault relays and lock-step simulation; usable alone, against any client."""
