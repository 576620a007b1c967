"""Experiments of many independent runs, those of the papers among them, and what carries them out."""
