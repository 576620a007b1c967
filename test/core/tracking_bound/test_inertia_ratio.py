"""The range of true over nominal inertia against random arms and payloads."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import eigh

from sysid_ros.core.common.box import Box
from sysid_ros.core.control.model import ControlModel, PassiveDynamics, add_payload
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.robot import PayloadPrior
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.tracking_bound.inertia_ratio import compute_inertia_ratio, inertia_ratios, magnitude
from sysid_ros.core.tracking_bound.uncertainty import inertial_uncertainties


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


def ranges(robot, model, q):
    """The narrowest range of all descriptions of the uncertainty, (S,) each."""
    nominal = np.tile(model.payload, (len(q), 1))
    found = [inertia_ratios(robot, one, q, nominal) for one in inertial_uncertainties(robot, model)]
    return np.max([low for low, _ in found], axis=0), np.min([high for _, high in found], axis=0)


def test_prior_covers_every_arm_and_payload(robot):
    model = ControlModel.of_boxes(robot)
    rng = np.random.default_rng(1)
    q = robot.home + rng.uniform(-1.0, 1.0, size=(6, robot.n))
    lower, upper = ranges(robot, model, q)
    assert np.all(lower > 0.4) and np.all(upper < 3.0)
    reached = np.array([9.0, 0.0])
    for trial in range(150):
        theta = sample_parameters(robot, rng, corner=trial % 2 == 0)
        payload = sample_payload(robot.payload_prior, rng, corner=trial % 3 > 0) if trial % 5 else np.zeros(10)
        for position, low, high in zip(q, lower, upper, strict=True):
            smallest, biggest = true_ratios(robot, model, position, theta, payload)
            assert low <= smallest and biggest <= high
            reached = np.array([min(reached[0], smallest / low), max(reached[1], biggest / high)])
    assert reached[0] < 1.1 and reached[1] > 0.9
    heavy = from_com_form(6.0, [0.0, 0.0, -0.4], 0.1 * np.eye(3))
    assert true_ratios(robot, model, q[0], robot.theta_nominal, heavy)[1] > upper[0]


def test_a_box_alone_covers_every_body_in_it(robot):
    """Table I of SAFE-ID: last body and payload together, of which the box is all that is known."""
    prior, last = robot.prior("safe_id_table_1"), robot.inertial_slice(robot.n)
    body = robot.theta_nominal[last]
    arm = Box(*(np.where(np.arange(14 * robot.n) // 10 == robot.n - 1, robot.theta_nominal, bound)
                for bound in (robot.theta_box.lower, robot.theta_box.upper)))  # fmt: skip
    model = ControlModel(
        robot.theta_nominal, arm, prior.nominal - body, Box(prior.box.lower - body, prior.box.upper - body)
    )
    rng = np.random.default_rng(4)
    q = robot.home + rng.uniform(-1.0, 1.0, size=(2, robot.n))
    lower, upper = ranges(robot, model, q)
    reached = np.array([9.0, 0.0])
    found = 0
    while found < 150:
        mass, com = rng.choice([1.2, 5.2]), rng.uniform(-0.4, 0.4, 3)
        root = rng.normal(size=(3, 3)) * rng.choice([1e-4, 0.1, 0.2])
        total = from_com_form(mass, com, np.trace(root @ root.T) * np.eye(3) - root @ root.T)
        if not prior.box.contains(total):
            continue
        found += 1
        for position, low, high in zip(q, lower, upper, strict=True):
            smallest, biggest = true_ratios(robot, model, position, robot.theta_nominal, total - body)
            assert low <= smallest and biggest <= high
            reached = np.array([min(reached[0], smallest / low), max(reached[1], biggest / high)])
    assert reached[0] < 1.7 and reached[1] > 0.6


def test_narrow_boxes_give_a_narrow_range(robot, narrow):
    rng = np.random.default_rng(2)
    q = robot.home + rng.uniform(-1.0, 1.0, size=(3, robot.n))
    lower, upper = ranges(robot, narrow, q)
    assert np.all(lower > 0.65) and np.all(upper < 1.4)
    for trial in range(60):
        theta = sample_parameters(robot, rng, corner=trial % 2 == 0)
        payload = sample_payload(PayloadPrior(narrow.payload_box, narrow.payload), rng, corner=True)
        for position, low, high in zip(q, lower, upper, strict=True):
            smallest, biggest = true_ratios(robot, narrow, position, theta, payload)
            assert low <= smallest and biggest <= high


def test_slopes_cover_positions_nearby(robot):
    model = ControlModel.of_boxes(robot)
    rng = np.random.default_rng(3)
    uncertainty = inertial_uncertainties(robot, model)[-1]
    ratio = compute_inertia_ratio(robot, uncertainty, robot.home[None], model.payload[None], [0])
    radius = np.full(robot.n, 0.02)
    near = robot.home + rng.uniform(-1.0, 1.0, size=(20, robot.n)) * radius
    lower, upper = inertia_ratios(robot, uncertainty, near, np.tile(model.payload, (20, 1)))
    low, high = ratio.near(1.2 * radius)
    assert np.all(low <= lower) and np.all(upper <= high)
    assert high < ratio.upper + 0.1


def test_magnitude_is_the_matrix_absolute_value():
    x = np.random.default_rng(4).normal(size=(5, 4, 4))
    x += x.transpose(0, 2, 1)
    np.testing.assert_allclose(magnitude(x) @ magnitude(x), x @ x, atol=1e-12)
    assert np.all(np.linalg.eigvalsh(magnitude(x)) >= 0.0)
