"""The statistical interval: how often it holds the truth, rests, calibrations, what is apart from the bounds."""

import dataclasses

import numpy as np
import pytest

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.point.statistics import compute_statistical_interval
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.tare import known_rows
from sysid_ros.core.model.calibration import ArmCalibration, CalibrationRecord
from sysid_ros.core.model.robot import INERTIAL
from sysid_ros.core.model.sampling import sample_parameters, sample_payload

SETTINGS = EstimatorSettings(bound_tolerance=0.05)


class Rest:
    """A motion that stays where another one begins."""

    def __init__(self, motion):
        self._motion = motion

    def __call__(self, t):
        q, v, a = self._motion(np.zeros_like(np.asarray(t, dtype=float)))
        return q, np.zeros_like(v), np.zeros_like(a)


def rows_of(tools, robot, seed, seconds=3.0, rests=False, stiction=0.0):
    """Rows of a recording, the truth, and the estimate; ``stiction``: share of F_c that acts in each joint at rest."""
    rng = np.random.default_rng(seed)
    theta, payload = sample_parameters(robot, rng), sample_payload(robot.payload_prior, rng)
    motion = tools.FourierMotion(robot, seed)
    exact = tools.record(robot, theta, payload, Rest(motion) if rests else motion, seconds, rate=500.0)
    held = stiction * theta[INERTIAL * robot.n :: 4] if rests else 0.0
    rows = []
    estimator = StreamingEstimator(robot, SETTINGS, on_rows=rows.append)
    estimator.add(tools.measure(robot, exact.q, exact.v, exact.tau + held, rng, period=0.002))
    return rows, payload, estimator.estimate()


@pytest.mark.slow
def test_it_holds_the_truth_about_as_often_as_it_says_and_never_leaves_the_bounds(tools, robot):
    held, widths = [], []
    for seed in range(10):
        rows, payload, estimate = rows_of(tools, robot, seed)
        found = compute_statistical_interval(robot, SETTINGS, rows, estimate.box)
        assert found.confidence == 0.95 and not found.absence
        assert np.all((estimate.lower <= found.lower) & (found.upper <= estimate.upper))
        held.append((found.lower <= payload) & (payload <= found.upper))
        widths.append((found.upper - found.lower) / (estimate.upper - estimate.lower))
    assert np.mean(held) >= 0.9
    assert np.median(widths) < 0.8 and np.max(widths) < 0.951


@pytest.mark.slow
@pytest.mark.parametrize("stiction", [-0.9, 0.9])
def test_a_rest_is_one_measurement_however_long(tools, robot, stiction):
    rows, payload, estimate = rows_of(tools, robot, 1, rests=True, stiction=stiction)
    short = compute_statistical_interval(robot, SETTINGS, rows[:2], estimate.box)
    long = compute_statistical_interval(robot, SETTINGS, rows * 20, estimate.box)
    assert long.lower[0] <= payload[0] <= long.upper[0]
    np.testing.assert_allclose(long.upper - long.lower, short.upper - short.lower, rtol=0.05)


@pytest.mark.slow
def test_rows_of_a_calibration_narrow_it(tools, robot):
    rows, _, estimate = rows_of(tools, robot, 2)
    matrix = np.eye(INERTIAL * robot.n + 6 * robot.n + 3)[: INERTIAL * robot.n]
    values, record = sample_parameters(robot, np.random.default_rng(2)), CalibrationRecord("test", "2026-01-01")
    ends = [values[: INERTIAL * robot.n] + side for side in (-1e-6, 1e-6)]
    exact = ArmCalibration(robot.name, "", record, matrix, *ends, robot.theta_box, robot.theta_nominal)
    known = dataclasses.replace(robot, calibration=exact)
    more = known_rows(known, describe_unknowns(known, SETTINGS), SETTINGS, rows, None)
    wide, narrow = (compute_statistical_interval(robot, SETTINGS, rows, estimate.box, some) for some in ((), more))
    assert narrow.upper[0] - narrow.lower[0] < 0.8 * (wide.upper[0] - wide.lower[0])


@pytest.mark.slow
def test_what_is_apart_from_the_bounds_is_absent_with_a_sentence(tools, robot):
    rows, _, estimate = rows_of(tools, robot, 0)
    lower, upper = estimate.lower.copy(), estimate.upper.copy()
    lower[0], upper[0] = robot.payload_prior.box.upper[0] + np.array([1.0, 1.1])
    found = compute_statistical_interval(robot, SETTINGS, rows, Box(lower, upper))
    assert np.isnan(found.lower[0]) and np.isnan(found.upper[0]) and np.all(np.isfinite(found.lower[1:]))
    assert found.absence.startswith("none of m: the likely values lie outside the guaranteed bounds")
    assert compute_statistical_interval(robot, SETTINGS, [], estimate.box) is None
