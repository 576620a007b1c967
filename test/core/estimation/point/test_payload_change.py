"""A payload that slips: where the test tells it, where it does not, and the same step by another solver."""

from dataclasses import replace

import numpy as np
import pytest

from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.point import payload_change
from sysid_ros.core.estimation.point.payload_change import (
    CHANGING,
    STEP,
    STICKING,
    ChangeMonitor,
    WeightedColumns,
    weak_prior,
)
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.model.inertia import from_com_form, to_com_form
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.drivers.mujoco.simulation import load_payload

SETTINGS = EstimatorSettings(bound_tolerance=0.05)
SLIP, PERIOD = 0.04, 0.002


def slipped(payload, distance=SLIP):
    """The payload, further along the axis of the last joint."""
    mass, com, inertia = to_com_form(payload)
    return from_com_form(mass, com + [0.0, 0.0, distance], inertia)


def estimator_after(tools, robot, seed, after, moment=2.0, seconds=4.0, settings=SETTINGS):
    """An estimator that has seen a payload change at a moment [s], the rows of its windows, and its notices."""
    rng = np.random.default_rng(seed)
    theta, before = sample_parameters(robot, rng), load_payload(robot, "dumbbell_4lb")
    motion = tools.FourierMotion(robot, seed)
    runs = [tools.record(robot, theta, one, motion, seconds, rate=1.0 / PERIOD) for one in (before, after(before))]
    tau = np.where(runs[0].seconds[:, None] < moment, runs[0].tau, runs[1].tau)
    rows = []
    estimator = StreamingEstimator(robot, settings, on_rows=rows.append)
    notices = estimator.add(tools.measure(robot, runs[0].q, runs[0].v, tau, rng, period=PERIOD))
    return estimator, rows, notices


@pytest.mark.slow
def test_a_slip_that_bounds_admit_is_told_with_its_moment_and_size(tools, robot):
    estimator, rows, notices = estimator_after(tools, robot, 1, slipped)
    estimate = estimator.estimate()
    assert estimate.is_consistent and "seems to have changed" in estimate.payload_change
    assert notices.count(estimate.payload_change) == 1
    monitor = ChangeMonitor(robot, describe_unknowns(robot, SETTINGS))
    for one in rows:
        monitor.add(one)
    change = monitor.find()
    mass = load_payload(robot, "dumbbell_4lb")[0]
    assert change.seconds == pytest.approx(2.0, abs=0.15) and abs(change.mass) < 0.05
    np.testing.assert_allclose(
        change.first_moment, [0.0, 0.0, SLIP * mass], atol=0.4 * SLIP * mass
    )  # shrunk by what the arm could be


@pytest.mark.slow
def test_without_a_change_nothing_is_told_and_a_small_one_does_not_show(tools, robot):
    for seed, distance in ((1, 0.0), (2, 0.0), (3, 1e-4)):
        estimator, _, notices = estimator_after(tools, robot, seed, lambda one, by=distance: slipped(one, by))
        assert estimator.estimate().payload_change == "" and notices == []


def test_a_change_is_found_where_windows_do_not_scatter_in_other_directions(robot):
    """As those of perfect data: the covariance of their scores is singular."""
    monitor = ChangeMonitor(robot, describe_unknowns(robot, SETTINGS))
    size = monitor._columns.radius.size
    monitor._grams = 40 * [1e3 * np.eye(size)]
    monitor._scores = 20 * [-np.eye(size)[0]] + 20 * [np.eye(size)[0]]
    monitor._starts, monitor._sizes, monitor._rows, monitor._squares = list(range(40)), 40 * [1], 40, 0.04
    monitor._gram, monitor._score = sum(monitor._grams), sum(monitor._scores)
    assert monitor.find().stamp_ns == 20


@pytest.mark.slow
def test_a_new_estimate_begins_where_that_is_wanted(tools, robot):
    settings = replace(SETTINGS, detect_payload_change=True)
    estimator, _, notices = estimator_after(tools, robot, 1, slipped, moment=1.5, settings=settings)
    (notice,) = (text for text in notices if "restarted" in text)
    assert "seems to have changed" in notice
    estimate = estimator.estimate()
    assert estimate.payload_change == "" and estimate.data_seconds < 2.0
    assert estimate.contains(slipped(load_payload(robot, "dumbbell_4lb")))


@pytest.mark.slow
def test_the_step_is_that_of_dense_least_squares_and_merging_keeps_it(tools, robot, monkeypatch):
    _, rows, _ = estimator_after(tools, robot, 1, slipped)
    unknowns = describe_unknowns(robot, SETTINGS)
    whole = ChangeMonitor(robot, unknowns)
    for one in rows:
        whole.add(one)
    found = whole.find()
    stacked = Rows.stack(rows)
    a, weight, r = WeightedColumns(robot, unknowns).build(stacked)
    weight = weight * (stacked.errors[:, ERROR_TERMS.index("coulomb")] <= STICKING * stacked.error)
    later = stacked.start >= found.stamp_ns
    a = np.concatenate([a, a[:, :CHANGING] * later[:, None]], axis=1)
    prior = np.concatenate([weak_prior(a.shape[1] - CHANGING), np.full(CHANGING, STEP)])
    matrix = np.concatenate([a * np.sqrt(weight)[:, None], np.diag(np.sqrt(prior))])
    z = np.linalg.lstsq(matrix, np.concatenate([r * np.sqrt(weight), np.zeros(prior.size)]))[0]
    step = z[-CHANGING:] * unknowns.prior.radius[:CHANGING]
    np.testing.assert_allclose([found.mass, *found.first_moment], step, rtol=1e-4, atol=1e-6)

    monkeypatch.setattr(payload_change, "MOST_BLOCKS", 16)
    merged = ChangeMonitor(robot, unknowns)
    for one in rows:
        merged.add(one)
    again = merged.find()
    assert again.seconds == pytest.approx(found.seconds, abs=0.4)
    np.testing.assert_allclose(again.first_moment, found.first_moment, atol=0.3 * SLIP)


def test_few_windows_tell_nothing(robot):
    assert ChangeMonitor(robot, describe_unknowns(robot, SETTINGS)).find() is None
