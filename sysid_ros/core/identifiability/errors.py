"""Descriptions of mechanisms that cannot be analysed."""

from __future__ import annotations

from sysid_ros.core.errors import ModelError


class InvalidTree(ModelError):
    """A kinematic tree that cannot be analysed.

    Args:
        element: What is at fault, such as ``joint 'elbow'``.
        problem: What is wrong, and what to do.
    """

    def __init__(self, element: str, problem: str):
        self.element = element
        self.problem = problem
        super().__init__(f"{element}: {problem}")
