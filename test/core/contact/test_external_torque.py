"""External torques: intervals hold the truth, nothing is proven without contact, the linear program agrees."""

import dataclasses

import numpy as np
import pytest
from scipy.optimize import linprog

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.contact.external_torque import ExternalTorqueObserver, Reference
from sysid_ros.core.contact.wrench import WrenchObserver
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.estimation.windows.stream import RowStream

SETTINGS = EstimatorSettings(max_windows=20, update_windows=10)


def observe(robot, block, learn, settings=SETTINGS):
    """External torques of a recording whose first ``learn`` [s] are the reference."""
    count = int(np.searchsorted(block.seconds, learn)) + 1
    observer, estimator = ExternalTorqueObserver(robot, settings), StreamingEstimator(robot, settings)
    before = observer.add(block.slice(0, count))
    estimator.add(block.slice(0, count))
    estimator.estimate()
    observer.set_reference(estimator.stored_windows, estimator.bounds.box, estimator.stream.reference)
    return before, observer.add(block.slice(count)), estimator


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(k, marks=pytest.mark.slow) for k in (2, 3))])
def test_intervals_hold_the_true_torque_with_and_without_contact(robot, pushed, seed):
    rng = np.random.default_rng((seed, 5))
    arm = pushed(robot, seed, rng.normal(size=6) * [20, 20, 20, 3, 3, 3], since=3.42)
    before, after, _ = observe(robot, arm.record(4.6, is_adversarial=seed % 2 == 1), 3.0)
    assert len(before) >= 29 and len(after) >= 15
    for window in (*before, *after):
        truth = arm.mean_external(window)
        assert np.all(window.lower <= truth) and np.all(truth <= window.upper)
        if window.stop * 1e-9 <= arm.since:
            assert not window.is_proven.any()


def test_the_reference_narrows_every_interval(robot, pushed):
    before, after, _ = observe(robot, pushed(robot, 0, np.zeros(6)).record(4.0), 3.0)
    boxes, learned = (np.median([window.width for window in part], axis=0) for part in (before, after))
    assert np.all(learned < 0.6 * boxes)


@pytest.mark.slow
def test_a_force_of_the_stated_size_is_detected_in_its_first_whole_window(robot, pushed):
    quiet = pushed(robot, 2, np.zeros(6))
    _, after, _ = observe(robot, quiet.record(4.0), 3.0)
    wrenches, window = WrenchObserver(robot), after[3]
    for axis in range(3):
        size = 1.05 * wrenches.smallest_detectable(window)[axis]
        arm = pushed(robot, 2, size * np.eye(6)[axis], since=3.2)
        _, found, _ = observe(robot, arm.record(4.0), 3.0)
        assert any(w.is_proven.any() for w in found if w.start == window.start)
        assert not any(w.is_proven.any() for w in found if 1e-9 * w.stop <= 3.2)


@pytest.mark.slow
def test_intervals_hold_those_of_the_linear_program_and_are_not_much_wider(robot, pushed):
    """The smallest interval of external impulses over everything that is consistent with the reference, by HiGHS."""
    arm = pushed(robot, 1, np.array([5.0, 0, 0, 0, 0, 0]), since=3.0)
    block = arm.record(3.6)
    _, after, estimator = observe(robot, block, 2.0)
    unknowns, window = describe_unknowns(robot, SETTINGS), after[-1]
    stream = RowStream(robot, SETTINGS, unknowns)
    rows = next(found for found in map(stream.build_rows, stream.add(block)[0]) if int(found.start[0]) == window.start)
    box, n = estimator.bounds.box, robot.n
    both = Rows.stack([*estimator.stored_windows, rows])
    problem = Problem.build(both, box.center, box.radius, unknowns.radius, unknowns.end_error)
    impulse = np.zeros((len(both), n))
    impulse[-n:] = -np.eye(n)
    shared = np.concatenate([problem.y, problem.b, problem.end_matrix.toarray()], axis=1)
    gains = np.concatenate(
        [shared * np.concatenate([problem.radius, problem.delta_radius, problem.end_radii]), impulse], 1
    )
    limits = [(-1.0, 1.0)] * shared.shape[1] + [(None, None)] * n
    seconds = 1e-9 * (window.stop - window.start)
    for joint in range(n):
        for sign, end in ((1.0, window.lower), (-1.0, window.upper)):
            cost = np.zeros(gains.shape[1])
            cost[shared.shape[1] + joint] = sign
            scale = 1.0 / problem.error
            solved = linprog(
                cost,
                A_ub=np.concatenate([gains, -gains]) * np.tile(scale, 2)[:, None],
                b_ub=np.concatenate([problem.r + problem.error, problem.error - problem.r]) * np.tile(scale, 2),
                bounds=limits,
            )
            assert solved.status == 0
            best, found = sign * solved.fun / seconds, end[joint]
            assert sign * found <= sign * best + 1e-6
            assert abs(best - found) <= 0.5 * window.width[joint]


def test_a_known_payload_needs_no_reference(robot, pushed):
    """As after an identification."""
    arm = pushed(robot, 3, np.zeros(6))
    block = arm.record(0.4)
    wide, prior = ExternalTorqueObserver(robot, SETTINGS).add(block), robot.payload_prior
    box = Box.around(prior.nominal, 0.01 * np.abs(prior.nominal) + 1e-6)
    known = dataclasses.replace(prior, box=box, shape=None)
    narrow = ExternalTorqueObserver(dataclasses.replace(robot, payload_prior=known), SETTINGS).add(block)
    assert np.all(narrow[0].width < wide[0].width)


def test_clearing_goes_back_to_the_prior(robot, pushed):
    block = pushed(robot, 0, np.zeros(6)).record(2.5)
    observer, estimator = ExternalTorqueObserver(robot, SETTINGS), StreamingEstimator(robot, SETTINGS)
    estimator.add(block.slice(0, 900))
    first = observer.add(block.slice(0, 101))
    fresh = ExternalTorqueObserver(robot, SETTINGS)
    observer.set_reference(estimator.stored_windows, estimator.bounds.box, estimator.stream.reference)
    assert observer.reference.rows > 0
    observer.clear()
    assert observer.reference.rows == 0
    again, prior = observer.add(block.slice(900)), fresh.add(block.slice(900))
    assert first and again and [list(w.lower) for w in again] == [list(w.lower) for w in prior]


def test_an_impulse_added_to_the_rows_is_inside(robot, pushed):
    arm = pushed(robot, 1, np.zeros(6))
    unknowns = describe_unknowns(robot, SETTINGS)
    stream = RowStream(robot, SETTINGS, unknowns)
    rows = [stream.build_rows(window) for window in stream.add(arm.record(1.0))[0]]
    shifted = dataclasses.replace(rows[-1], u=rows[-1].u - 100.0)
    lower, upper = Reference(unknowns.prior, unknowns, rows[:-1]).bound(shifted)
    assert np.all(lower <= 100.0) and np.all(100.0 <= upper) and np.all(lower > 0.0)


def test_all_bodies_at_once_are_refused(robot):
    with pytest.raises(ParameterOutOfRange, match="body"):
        ExternalTorqueObserver(robot, EstimatorSettings(body="all"))
