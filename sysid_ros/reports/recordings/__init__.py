"""Recordings: written as mcap, read from mcap, csv and npz."""
