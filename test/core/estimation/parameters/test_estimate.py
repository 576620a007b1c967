"""What an estimate proves: from the bounds and the prior, not from what somebody says."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.estimation.bounds.shape_cuts import shape_cuts
from sysid_ros.core.estimation.bounds.state import BoundState
from sysid_ros.core.estimation.parameters.bounds import find_narrower, tighten, tighten_to_shape
from sysid_ros.core.estimation.parameters.estimate import EstimateStatus, ParameterEstimate, Quantity
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.payload import read_prior
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.model.settings import Section

MASS, COM, INERTIA = Quantity


@pytest.fixture(scope="module")
def prior(robot):
    return robot.payload_prior.box


def shrunk(box, entries, factor):
    radius = box.radius.copy()
    radius[entries] *= factor
    return Box.around(box.center, radius)


def test_only_what_is_narrower_counts(robot, prior):
    shape = robot.payload_prior.shape
    assert find_narrower(prior, prior, shape) == find_narrower(prior, prior, None) == frozenset()
    assert find_narrower(shrunk(prior, [0], 0.98), prior, None) == {MASS}
    assert find_narrower(shrunk(prior, [0], 0.995), prior, None) == frozenset()
    assert find_narrower(shrunk(prior, range(4, 10), 0.9), prior, None) == {INERTIA}
    assert find_narrower(shrunk(prior, range(4, 9), 0.9), prior, None) == frozenset()  # of Izz nothing is known
    body = from_com_form(1.8, [0.0, 0.0, -0.1], 0.004 * np.eye(3))
    assert find_narrower(Box.around(body, 0.01 * np.abs(body) + 1e-4), prior, shape) == frozenset(Quantity)


def test_the_mass_alone_says_nothing_of_where_it_is(robot, prior):
    """First moments narrow with the mass; the CoM does not."""
    shape = robot.payload_prior.shape
    known = tighten_to_shape(tighten(Box([1.9, *prior.lower[1:]], [2.0, *prior.upper[1:]])), shape)
    assert np.all(known.width[1:4] < 0.9 * prior.width[1:4])
    assert COM not in find_narrower(known, prior, shape) and MASS in find_narrower(known, prior, shape)


def test_a_weighed_sum_of_mass_and_first_moments_is_no_centre_of_mass(robot, prior):
    """Gravity at rest shows such sums: with the shape they narrow first moments beyond the mass, and leave all CoMs."""
    shape = robot.payload_prior.shape
    lower, upper = prior.lower.copy(), prior.upper.copy()
    com = np.random.default_rng(0).uniform(shape.com.lower, shape.com.upper, (20000, 3))
    mass = 0.4 / (0.4 + com[:, 0] - com[:, 1] - com[:, 2] + shape.com.upper[2])  # one sum is known
    lower[:4], upper[:4] = (end(np.column_stack([mass, mass[:, None] * com]), axis=0) for end in (np.min, np.max))
    known = Box(lower, upper)
    alone = tighten_to_shape(Box([lower[0], *prior.lower[1:]], [upper[0], *prior.upper[1:]]), shape)
    assert np.all(known.width[1:4] < 0.98 * alone.width[1:4])
    assert COM not in find_narrower(known, prior, shape) and MASS in find_narrower(known, prior, shape)
    middle = 1.8 * shape.com.center
    known = Box([1.75, *(middle - 0.04), *prior.lower[4:]], [1.85, *(middle + 0.04), *prior.upper[4:]])
    assert COM in find_narrower(known, prior, shape)


def test_what_holds_for_every_body_is_not_learnt_from_data(robot, prior):
    shape = robot.payload_prior.shape
    wide = Box(prior.lower - 0.5 * prior.width, prior.upper + 0.5 * prior.width)
    for one in (None, shape):
        everybody = tighten(wide) if one is None else tighten_to_shape(tighten(wide), one)
        assert np.any(everybody.width < 0.9 * wide.width)
        assert find_narrower(everybody, wide, one) == frozenset()


def test_what_a_prior_along_other_axes_says_is_not_learnt_from_data(robot):
    """The box around the parameters of its objects holds much that none of them reaches."""
    values = {"mass": [0.5, 2.0], "radius_of_gyration": 0.08}
    values["center_of_mass"] = {"lower": [-0.1, 0.02, 0.1], "upper": [0.05, 0.06, 0.3]}
    placement = (rotation_from_rpy([0.4, 0.5, 0.6]), np.array([0.0, 0.0, 0.1]))
    prior = read_prior(Section(values, "payload_priors.test"), "test", placement, robot.n)
    turned = dataclasses.replace(robot, payload_prior=prior)
    state = BoundState(describe_unknowns(turned, EstimatorSettings()), EstimatorSettings())
    cuts, box = shape_cuts(prior.shape, prior.box), state.prior
    assert np.all(box.width[4:] < 0.99 * prior.box.width[4:])  # so that all of it would count as narrower
    for k in range(10):  # HiGHS finds no more in the cuts
        ends = [
            sign
            * linprog(
                sign * np.eye(10)[k], -cuts, np.zeros(len(cuts)), bounds=np.stack([box.lower, box.upper], axis=1)
            ).fun
            for sign in (1.0, -1.0)
        ]
        assert ends[1] - ends[0] > 0.995 * box.width[k]
    rng = np.random.default_rng(0)
    for k in range(300):
        assert box.contains(sample_payload(prior, rng, corner=k % 2 == 0))
    assert find_narrower(box, state.prior, prior.shape) == frozenset()


def test_status_of_a_run(robot, tools):
    robot = tools.perfect_sensors(robot)
    theta = sample_parameters(robot, np.random.default_rng(0))
    block = tools.record(robot, theta, robot.payload_prior.nominal, tools.FourierMotion(robot, 3), 6.0, rate=250.0)
    estimator = StreamingEstimator(robot, EstimatorSettings())
    before = estimator.estimate()
    assert before.status is EstimateStatus.NO_DATA and before.shortfall == "no samples have come"
    estimator.add(block.slice(0, 20))
    assert estimator.estimate().status is EstimateStatus.NO_DATA
    assert "takes 0.104 s: record for longer" in estimator.estimate().shortfall
    estimator.add(block.slice(20))
    after = estimator.estimate()
    assert after.status is EstimateStatus.IDENTIFIED and after.narrower == frozenset(Quantity)
    assert after.shortfall == "" and after.is_narrower.all()
    estimator.reset("another payload")
    assert estimator.estimate().status is EstimateStatus.NO_DATA
    assert estimator.estimate().shortfall == "no samples have come"


def test_status_follows_from_the_other_fields(robot, tools):
    estimator = StreamingEstimator(robot, EstimatorSettings())
    blank = dataclasses.replace(estimator.estimate(), number_of_windows=5)
    assert blank.status is EstimateStatus.PRIOR_ONLY
    assert dataclasses.replace(blank, narrower=frozenset({COM})).status is EstimateStatus.PARTIAL
    assert dataclasses.replace(blank, is_narrower=np.arange(10) == 3).status is EstimateStatus.PARTIAL
    assert dataclasses.replace(blank, narrower=frozenset(Quantity)).status is EstimateStatus.IDENTIFIED
    assert dataclasses.replace(blank, is_consistent=False).status is EstimateStatus.INCONSISTENT
    known = dataclasses.replace(blank, narrower=frozenset(Quantity), number_of_windows=0)
    assert known.status is EstimateStatus.NO_DATA


@pytest.mark.parametrize("values", [np.zeros(10), np.arange(10.0)])
def test_an_estimate_is_frozen_and_answers_questions(robot, values):
    facts = ("left_inverse", "", True, True, None, "payload", "joint_7")
    shares = {"velocity": np.ones(10)}
    estimate = ParameterEstimate(values, values - 1, values + 2, *facts, 1, 0.1, 2.0, shares)
    np.testing.assert_array_equal(estimate.radius, np.full(10, 1.5))
    assert estimate.contains(values + 2) and not estimate.contains(values + 2.1)
    with pytest.raises(ValueError, match="read-only"):
        estimate.lower[0] = 3.0
    with pytest.raises(ValueError, match="read-only"):
        estimate.error_budget["velocity"][0] = 3.0
