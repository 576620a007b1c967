"""How much of the allowed errors data use: against HiGHS, and with assumptions that are kept or broken."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog
from textbook import load_textbook

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.bounds import agreement
from sysid_ros.core.estimation.bounds.agreement import Agreement, find_least_scale
from sysid_ros.core.estimation.bounds.set_membership import bound_by_membership
from sysid_ros.core.estimation.calibration import describe_doubts, find_share
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model.calibration import CalibrationRecord

ROWS, TARGETS, SHARED = 40, 4, 3
AGREES = Agreement(0.6, 0.8, 0.0, 0.002)


def random_problem(seed, size=0.9):
    """Rows of a target in its box, with independent and shared errors up to a share of their bounds."""
    rng = np.random.default_rng(seed)
    matrix = rng.normal(size=(ROWS, TARGETS))
    truth, errors = rng.uniform(-1.0, 1.0, TARGETS), rng.uniform(0.1, 0.3, ROWS)
    box = Box(np.full(TARGETS, -1.0), np.full(TARGETS, 1.0))
    gains, radius = rng.normal(size=(ROWS, SHARED)), rng.uniform(0.05, 0.2, SHARED)
    delta = size * radius * rng.uniform(-1.0, 1.0, SHARED)
    right = matrix @ truth + gains @ delta + size * errors * rng.uniform(-1.0, 1.0, ROWS)
    problem = Problem.of_rows(matrix, Box(right - errors, right + errors), box, np.eye(TARGETS))
    return dataclasses.replace(problem, b=gains, delta_radius=radius)


def by_highs(problem, cuts):
    """The same program written down plainly."""
    columns = np.concatenate([problem.y, problem.b], axis=1)
    scale = -problem.error[:, None]
    radii = np.concatenate([np.zeros((SHARED, TARGETS)), np.eye(SHARED)], axis=1), -problem.delta_radius[:, None]
    wide = np.concatenate([-cuts, np.zeros((len(cuts), SHARED + 1))], axis=1)
    a = np.concatenate([
        np.concatenate([columns, scale], axis=1), np.concatenate([-columns, scale], axis=1),
        np.concatenate(radii, axis=1), np.concatenate([-radii[0], radii[1]], axis=1), wide,
    ])  # fmt: skip
    right = np.concatenate([problem.r, -problem.r, np.zeros(2 * SHARED), cuts @ problem.center])
    bounds = [(-r, r) for r in problem.radius] + [(None, None)] * SHARED + [(0.0, None)]
    return linprog(np.eye(TARGETS + SHARED + 1)[-1], a, right, bounds=bounds, method="highs").fun


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("size", [0.3, 0.9, 1.6])
def test_the_least_scale_is_that_of_highs(seed, size):
    problem = random_problem(seed, size)
    cuts = np.array([[1.0, 0.5, 0.0, 0.0]])
    found, target = find_least_scale(problem, cuts)
    assert found == pytest.approx(by_highs(problem, cuts), rel=0.01)
    assert np.all(np.abs(target) <= 1.0)


@pytest.mark.parametrize("size", [0.5, 0.95, 2.0])
def test_the_box_of_the_target_is_not_scaled(size):
    """A target at the edge of its box needs no errors."""
    problem = random_problem(0)
    problem = dataclasses.replace(problem, r=problem.y @ np.full(TARGETS, size))
    found, _ = find_least_scale(problem, np.zeros((0, TARGETS)))
    assert (found < 0.06) == (size < 1.0)


@pytest.mark.parametrize("seed", range(6))
def test_no_width_is_below_what_the_share_leaves(seed):
    """found / expected >= 1 - share, the theorem of the page on bounds."""
    problem = random_problem(seed)
    share, target = find_least_scale(problem, np.zeros((0, TARGETS)))
    virtual = dataclasses.replace(problem, r=problem.y @ (target - problem.center))
    found, expected = (bound_by_membership(one, 1e-3) for one in (problem, virtual))
    assert np.all(found.upper - found.lower >= (1.0 - share - 0.01) * (expected.upper - expected.lower))


def test_a_lag_is_estimated_with_its_error():
    """Against the weighted least squares of the same rows written down plainly."""
    problem, rng = random_problem(1, 0.5), np.random.default_rng(9)
    lags = rng.normal(size=ROWS)
    broken = dataclasses.replace(problem, r=problem.r + 0.02 * lags)
    lag, error = agreement._estimate_lag(broken, lags, np.zeros((ROWS, 0)))
    assert abs(lag - 0.02) < 3.0 * error
    weights = np.sqrt(3.0) / problem.error
    rows = np.concatenate([np.column_stack([problem.y, problem.b, lags]) * weights[:, None], np.eye(TARGETS + 4)])
    radii = [np.full(TARGETS, 1.0 / np.sqrt(3.0)), problem.delta_radius / np.sqrt(3.0), [0.05]]
    rows[ROWS:] /= np.concatenate(radii)
    found = np.linalg.lstsq(rows, np.concatenate([broken.r * weights, np.zeros(TARGETS + 4)]), rcond=None)[0]
    assert lag == pytest.approx(found[-1], rel=1e-6)
    assert error == pytest.approx(np.sqrt(np.linalg.inv(rows.T @ rows)[-1, -1]), rel=1e-6)
    none = agreement._estimate_lag(broken, np.zeros(ROWS), np.zeros((ROWS, 0)))
    assert none == (0.0, pytest.approx(0.05))


def test_the_error_of_a_lag_counts_vibration_of_all_joints_at_an_instant_as_one():
    """Against the covariance of dense rows; how the lag follows from the rows is found by changing them."""
    problem, rng = random_problem(2), np.random.default_rng(10)
    lags, instants = rng.normal(size=ROWS), np.arange(ROWS)
    problem = dataclasses.replace(
        problem, ends=0.1 * rng.normal(size=(ROWS, 2, 3)), end_index=np.column_stack([instants, instants + 1]),
        end_radius=np.array([0.5, 0.4, 0.3]), end_term=np.zeros(3, dtype=np.int64),
    )  # fmt: skip
    none, right = np.zeros((ROWS, 0)), problem.r
    lag, error = agreement._estimate_lag(problem, lags, none)
    changed = (dataclasses.replace(problem, r=right + one) for one in np.eye(ROWS))
    gains = np.array([agreement._estimate_lag(one, lags, none)[0] - lag for one in changed])
    v = problem.end_matrix.toarray() * problem.end_radii
    unknown = np.concatenate([problem.y, problem.b * problem.delta_radius], axis=1)
    rows = (np.diag(problem.error**2) + v @ v.T) / 3.0
    columns = np.column_stack([unknown / np.sqrt(3.0), 0.05 * lags])
    precision = columns.T @ np.linalg.inv(rows) @ columns + np.eye(columns.shape[1])
    alone = 0.05**2 * np.linalg.inv(precision)[-1, -1]
    size = np.abs(gains @ v).reshape(-1, 3)
    assert error**2 == pytest.approx(alone + np.sum(size.sum(axis=1) ** 2 - (size**2).sum(axis=1)) / 3.0, rel=1e-6)
    assert error > 1.05 * np.sqrt(alone)


def test_recordings_of_an_arm_scale_its_box_too():
    problem = random_problem(2)
    problem = dataclasses.replace(problem, r=problem.y @ np.full(TARGETS, 0.5))
    everything = find_share(problem)
    assert 0.06 < everything <= 0.51  # the box counts: half of it and no errors would do


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"share": 0.95}, "95 % of the errors"),
        ({"width": 0.12}, "12 % of the width"),
        ({"lag": 0.02, "lag_error": 0.005}, "20 ms behind"),
        ({"share": 0.95, "has_calibration": True}, "another arm"),
    ],
)
def test_what_is_out_of_the_ordinary_is_said_with_causes(change, words):
    assert not AGREES.doubt
    text = dataclasses.replace(AGREES, **change).doubt
    assert words in text and "Likely causes" in text and "gripper" in text


@pytest.mark.parametrize("lag", [0.0, 0.025])
def test_the_first_seconds_of_motion_show_a_broken_assumption(tools, monkeypatch, lag):
    """Once, where the bounds are still feasible; the arm and what it holds are as assumed."""
    monkeypatch.setattr(agreement, "MOST_SHARE", 0.5)  # nothing is noisy here
    robot = load_textbook("kuka_lbr_iiwa7")
    motion = tools.FourierMotion(robot, seed=2, amplitude=0.25, base_frequency=0.3)
    block = tools.record(robot, robot.theta_nominal, robot.payload_prior.nominal, lambda t: motion(t - lag), 5.0)
    q, v, _ = motion(1e-9 * block.stamps)
    estimator, notices = StreamingEstimator(robot), []
    block = dataclasses.replace(block, q=q, v=v)
    for first in range(0, len(block), 100):
        found = [text for text in estimator.add(block.slice(first, first + 100)) if "Likely causes" in text]
        notices += [(first, text) for text in found]
    doubt = estimator.estimate().doubt
    if not lag:
        assert not doubt and not notices
        return
    ((first, text),) = notices
    assert 4000 <= first < 4300 and text == doubt and "of the errors that are allowed" in doubt
    estimator.reset("another payload")
    assert not estimator.estimate().doubt


def test_a_lag_that_may_be_none_is_no_doubt():
    assert not dataclasses.replace(AGREES, lag=0.04, lag_error=0.02).doubt


def test_weights_are_named_as_what_cannot_be_checked():
    record = CalibrationRecord(serial="A", date="2026-11-28", weights=(2.0,), share=0.5)
    assert "reference weight (2 kg) cannot be separated" in describe_doubts(record)[0]
    assert "(1 kg and 2 kg)" in describe_doubts(dataclasses.replace(record, weights=(1.0, 2.0)))[0]
    assert not describe_doubts(dataclasses.replace(record, weights=()))
    assert "99 %" in describe_doubts(dataclasses.replace(record, weights=(1.0, 2.0), share=0.99))[0]
    assert not describe_doubts(dataclasses.replace(record, weights=(), share=0.97))
