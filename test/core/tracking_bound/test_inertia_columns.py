"""Inertia and Christoffel symbols by parameter against Pinocchio and finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.tracking_bound.inertia_columns import coriolis_columns, inertia_columns


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


def test_christoffel_symbols_are_those_of_differences(case):
    robot, dynamics, parameters, q = case
    step = 1e-5 * np.eye(robot.n)
    slope = np.stack([(dynamics.inertia(q + one) - dynamics.inertia(q - one)) / 2e-5 for one in step], axis=1)
    expected = 0.5 * (slope + np.einsum("sbaj->sjab", slope) - np.einsum("sajb->sjab", slope))
    found = coriolis_columns(robot, q) @ parameters
    np.testing.assert_allclose(found, expected, atol=1e-8)
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(found + found.swapaxes(2, 3), slope, atol=1e-8)  # dH/dt = C + C^T
