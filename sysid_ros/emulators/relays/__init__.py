"""Relays that disturb UDP and TCP traffic."""
