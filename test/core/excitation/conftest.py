"""Robots and problems the excitation tests run on."""

from __future__ import annotations

import pytest

from sysid_ros.core.excitation.model import ExcitationModel
from sysid_ros.core.excitation.planner import plan_excitation
from sysid_ros.core.excitation.settings import ExcitationSettings


@pytest.fixture(scope="session")
def boxes_of():
    """The parameter boxes of a robot and of its payload."""
    return lambda robot: (robot.theta_box, robot.payload_prior.box)


@pytest.fixture(scope="session")
def model(gen3):
    """The arm with a ground and errors of a controller."""
    return ExcitationModel.of(gen3, tracking=_Tracking(), ground_height=0.0, feedback_torque=0.1)


@pytest.fixture(scope="session")
def plan(model, gen3):
    """A plan that many tests look at; iterations and not time limit it, so it is always the same."""
    settings = ExcitationSettings(starts=1, max_iterations=80, time_budget=60.0)
    return plan_excitation(model, gen3.home, settings)


class _Tracking:
    position = 0.01
    velocity = 0.02
