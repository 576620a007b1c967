"""The range of true over nominal inertia against random arms and payloads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh

from sysid_ros.core.control.inertia_ratio import compute_inertia_ratio, inertia_columns, inertia_ratios, magnitude
from sysid_ros.core.control.model import ControlModel, PassiveDynamics, add_payload
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.sampling import sample_parameters, sample_payload


def true_ratios(robot, model, q, theta, payload):
    """Smallest and largest generalised eigenvalue of (H, M)."""
    true, nominal = (PassiveDynamics(robot, total).inertia(q) for total in (add_payload(theta, payload), model.total))
    return eigh(true, nominal, eigvals_only=True)[[0, -1]]


@pytest.fixture(scope="module")
def narrow(robot):
    """A payload known to about 15 %."""
    payload = robot.payload_prior.nominal
    radius = np.array([0.2, 0.01, 0.01, 0.04, 0.01, 0.003, 0.01, 0.003, 0.003, 0.003])
    return ControlModel(robot.theta_nominal, robot.theta_box, payload, Box.around(payload, radius))


def test_columns_make_the_inertia(robot):
    model = ControlModel.of_boxes(robot)
    q = np.random.default_rng(0).normal(size=(3, robot.n))
    armature = robot.friction(model.total)[:, 2]
    parameters = np.concatenate([model.total[: 10 * robot.n], armature])
    expected = PassiveDynamics(robot, model.total).inertia(q)
    np.testing.assert_allclose(inertia_columns(robot, q) @ parameters, expected, atol=1e-12)


def test_prior_covers_every_arm_and_payload(robot):
    model = ControlModel.of_boxes(robot)
    rng = np.random.default_rng(1)
    q = robot.home + rng.uniform(-1.0, 1.0, size=(6, robot.n))
    lower, upper = inertia_ratios(robot, model, q)
    assert np.all(lower > 0.4) and np.all(upper < 4.5)
    largest = 0.0
    for trial in range(60):
        theta = sample_parameters(robot, rng, corner=trial % 2 == 0)
        payload = sample_payload(robot.payload_prior, rng, corner=trial % 3 == 0) if trial % 5 else np.zeros(10)
        for position, low, high in zip(q, lower, upper, strict=True):
            smallest, biggest = true_ratios(robot, model, position, theta, payload)
            assert low <= smallest and biggest <= high
            largest = max(largest, biggest)
    assert largest > 0.5 * upper.max()
    heavy = from_com_form(6.0, [0.0, 0.0, -0.4], 0.1 * np.eye(3))
    assert true_ratios(robot, model, q[0], robot.theta_nominal, heavy)[1] > upper[0]


def test_narrow_boxes_give_a_narrow_range(robot, narrow):
    rng = np.random.default_rng(2)
    q = robot.home + rng.uniform(-1.0, 1.0, size=(3, robot.n))
    lower, upper = inertia_ratios(robot, narrow, q)
    assert np.all(lower > 0.65) and np.all(upper < 1.4)
    for trial in range(60):
        theta = sample_parameters(robot, rng, corner=trial % 2 == 0)
        box = narrow.payload_box
        payload = np.where(rng.integers(0, 2, 10) == 1, box.lower, box.upper)
        for position, low, high in zip(q, lower, upper, strict=True):
            smallest, biggest = true_ratios(robot, narrow, position, theta, payload)
            assert low <= smallest and biggest <= high


def test_slopes_cover_positions_nearby(robot):
    model = ControlModel.of_boxes(robot)
    rng = np.random.default_rng(3)
    q = robot.home[None]
    ratio = compute_inertia_ratio(robot, model, q, q)
    radius = np.full(robot.n, 0.02)
    near = robot.home + rng.uniform(-1.0, 1.0, size=(20, robot.n)) * radius
    lower, upper = inertia_ratios(robot, model, near)
    low, high = ratio.near(1.2 * radius)
    assert np.all(low <= lower) and np.all(upper <= high)
    assert high < ratio.upper + 0.1


def test_magnitude_is_the_matrix_absolute_value():
    x = np.random.default_rng(4).normal(size=(5, 4, 4))
    x += x.transpose(0, 2, 1)
    np.testing.assert_allclose(magnitude(x) @ magnitude(x), x @ x, atol=1e-12)
    assert np.all(np.linalg.eigvalsh(magnitude(x)) >= 0.0)
