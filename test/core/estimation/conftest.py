"""The arm of the tests of the estimator, and what records it."""

import numpy as np
import pytest
import recorded_arms
from textbook import load_steady


@pytest.fixture(scope="session")
def tools():
    return recorded_arms


@pytest.fixture(scope="session")
def robot():
    return load_steady("kinova_gen3_2f85")


@pytest.fixture(scope="session")
def dumbbell(robot):
    """A 1.81 kg payload inside the prior, about the frame of the last joint."""
    from sysid_ros.core.model.inertia import from_com_form

    return from_com_form(1.814, [0.004, -0.006, -0.26], np.array([[0.0087, 4e-4, 0], [4e-4, 0.001, 0], [0, 0, 0.0087]]))
