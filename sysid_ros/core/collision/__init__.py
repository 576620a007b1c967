"""Collision geometry: scene, spheres, distances, and which pairs can touch at all."""
