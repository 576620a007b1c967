"""Inertia by parameter against Pinocchio."""

from __future__ import annotations

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.tracking_bound.inertia_columns import inertia_columns


@pytest.fixture(params=["kinova_gen3_2f85", "kuka_lbr_iiwa14"])
def case(request):
    """Dynamics, their parameters in the order of the columns, positions."""
    robot = load_textbook(request.param)
    total = ControlModel.of_boxes(robot).total
    parameters = np.concatenate([total[: 10 * robot.n], robot.friction(total)[:, 2]])
    positions = np.random.default_rng(0).normal(size=(3, robot.n))
    return robot, ArmDynamics(robot, total, armature=True), parameters, positions


def test_columns_make_the_inertia(case):
    robot, dynamics, parameters, q = case
    np.testing.assert_allclose(inertia_columns(robot, q) @ parameters, dynamics.inertia(q), atol=1e-12)
