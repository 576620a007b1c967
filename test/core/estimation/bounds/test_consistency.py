"""Joint infeasibility of several windows is found with the window that causes it, and only then."""

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import linprog

from sysid_ros.core.estimation.bounds import consistency as module
from sysid_ros.core.estimation.bounds.consistency import (
    JointConsistency,
    RowLabels,
    check_sensors,
    describe_inconsistency,
    find_feasible_point,
    find_inconsistent_rows,
    infeasibility_margin,
)
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.estimate import AlarmCode
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.model import WindowModel
from sysid_ros.core.estimation.windows.rows import Rows, build_rows
from sysid_ros.core.estimation.windows.stream import SampleStream
from sysid_ros.core.model.sampling import sample_parameters

SETTINGS = EstimatorSettings(use_cone=False, update_windows=1000, max_windows=1000)
CHANGE = 0.8
"""When the payload gets lighter [s]."""


def record_change(robot, tools, before, after, seconds=1.6, seed=4):
    """Noisy samples of an arm whose payload changes at `CHANGE`."""
    rng = np.random.default_rng(seed)
    theta, motion = sample_parameters(robot, rng, corner=True), tools.FourierMotion(robot, seed)
    blocks = [tools.record(robot, theta, payload, motion, seconds) for payload in (before, after)]
    is_before = (blocks[0].seconds <= CHANGE)[:, None]
    tau = np.where(is_before, blocks[0].tau, blocks[1].tau)
    return tools.measure(robot, blocks[0].q, blocks[0].v, tau, rng)


@pytest.fixture(scope="module")
def changed(robot, tools, dumbbell):
    return record_change(robot, tools, dumbbell, np.zeros(10))


def windows_of(robot, block, settings=SETTINGS):
    unknowns = describe_unknowns(robot, settings)
    model = WindowModel(robot, settings, unknowns)
    windows, _ = SampleStream(robot, settings).add(block)
    box = unknowns.prior

    def build(rows):
        return Problem.build(rows, box.center, box.radius, unknowns.radius, unknowns.end_error)

    return [build_rows(model, w) for w in windows], build


def is_possible(problem):
    """By scipy's simplex or interior-point method: whether any unknowns within their bounds agree with all rows."""
    radii = np.concatenate([problem.radius, problem.delta_radius, problem.end_radii])
    matrix = scipy.sparse.hstack([problem.y, problem.b, problem.end_matrix])
    scaled = scipy.sparse.diags_array(1.0 / problem.error) @ matrix @ scipy.sparse.diags_array(radii)
    both = scipy.sparse.vstack([scaled, -scaled]).tocsr()
    limits = np.concatenate([problem.r / problem.error + 1.0, 1.0 - problem.r / problem.error])
    return linprog(np.zeros(radii.size), A_ub=both, b_ub=limits, bounds=(-1.0, 1.0), method="highs-ipm").status == 0


def first_inconsistency(parts, build):
    """Number of the window with which the check finds infeasibility; None if it does not; and the combination."""
    consistency = JointConsistency()
    for k, rows in enumerate(parts):
        combination = consistency.check(build(rows), rows, lambda k=k: build(Rows.stack(parts[: k + 1])))
        if combination is not None:
            return k, combination, consistency.searches
    return None, None, consistency.searches


def test_the_window_is_the_first_that_makes_all_rows_impossible(robot, changed):
    parts, build = windows_of(robot, changed)
    found, combination, searches = first_inconsistency(parts, build)
    assert found is not None and found * 0.1 > CHANGE - 0.2
    assert is_possible(build(Rows.stack(parts[:found]))) and not is_possible(build(Rows.stack(parts[: found + 1])))
    # Each window by itself can be explained, and most need no program.
    assert not any(find_inconsistent_rows(build(rows)).size for rows in parts[: found + 1])
    assert searches < found
    assert infeasibility_margin(build(Rows.stack(parts[: found + 1])), combination) > 0.0


def test_without_a_change_there_is_none_and_few_searches(robot, tools, dumbbell):
    for seed in range(3):
        block = record_change(robot, tools, dumbbell, dumbbell, seed=seed)
        found, _, searches = first_inconsistency(*windows_of(robot, block))
        assert found is None and searches <= 8


def test_a_feasible_point_satisfies_all_rows(robot, tools, dumbbell):
    block = record_change(robot, tools, dumbbell, dumbbell)
    parts, build = windows_of(robot, block)
    point, extended = None, 0
    for k, rows in enumerate(parts):
        window, everything = build(rows), build(Rows.stack(parts[: k + 1]))
        before = point
        if before is not None:
            point = before.extend(window, int(rows.start[0]), int(rows.stop[0]))
        if before is None or point is None:
            point, combination = find_feasible_point(everything, int(rows.stop[0]))
            assert combination is None and point is not None
        else:
            extended += 1
            rest = window.r - window.y @ (point.target - window.center) - window.b @ point.delta
            rest -= window.ends[:, 0] @ before.end + window.ends[:, 1] @ point.end
            assert np.all(np.abs(rest) <= window.error * (1 + 1e-6))
        assert point.stamp == int(rows.stop[0])
        assert np.all(np.abs(point.end) <= window.end_radius * (1 + 1e-9))
        assert np.all(np.abs(point.target - everything.center) <= everything.radius * (1 + 1e-9))
        assert np.all(np.abs(point.delta) <= everything.delta_radius * (1 + 1e-9))
        # With some velocity errors before, all rows so far are met by this target and this arm.
        radii = np.concatenate([everything.end_radii, everything.error])
        matrix = scipy.sparse.hstack([everything.end_matrix, scipy.sparse.eye_array(len(everything.r))])
        rest = everything.r - everything.y @ (point.target - everything.center) - everything.b @ point.delta
        outcome = linprog(
            np.zeros(radii.size), A_eq=matrix, b_eq=rest, bounds=np.stack([-radii, radii], axis=1) * 1.001
        )
        assert outcome.status == 0
    assert extended >= 6
    # What cannot be explained is not: a window that is off by more than everything that could explain it.
    off = dataclasses.replace(window, r=window.r + 1.0)
    assert point.extend(off, 0, 1) is None


class TestAlarms:
    """Alarms carry what happened as data: code, joint, window and excess."""

    def labels(self, robot, rows):
        return RowLabels(rows, robot.joint_names, int(rows.start[0]))

    def test_a_row_that_is_infeasible_by_itself(self, robot, tools, dumbbell):
        parts, build = windows_of(robot, record_change(robot, tools, dumbbell, dumbbell, seconds=0.6))
        rows = Rows.stack(parts)
        row = 3 * robot.n + 4
        offset = build(rows).r[row]
        limit = module.largest_residual(build(rows), build(rows).radius)[row]
        u = rows.u.copy()
        u[row] += 2.0 * limit - offset
        wrong = dataclasses.replace(rows, u=u)
        alarm = describe_inconsistency(build(wrong), self.labels(robot, wrong))
        assert (alarm.code, alarm.joint, alarm.window) == (AlarmCode.WINDOW_INCONSISTENT, robot.joint_names[4], 3)
        assert alarm.excess == pytest.approx(limit / rows.duration[row], rel=1e-9)
        assert str(alarm) == alarm.text and f"{robot.joint_names[4]} in window 3 (0.3" in alarm.text
        assert f"mean torque off by {2.0 * limit / rows.duration[row]:.4g} Nm" in alarm.text

    def test_windows_that_are_jointly_infeasible(self, robot, changed):
        parts, build = windows_of(robot, changed)
        found, combination, _ = first_inconsistency(parts, build)
        rows = Rows.stack(parts[: found + 1])
        problem = build(rows)
        alarm = describe_inconsistency(problem, self.labels(robot, rows), combination)
        largest = int(np.argmax(np.abs(combination) * problem.error))
        assert alarm.code is AlarmCode.JOINTLY_INCONSISTENT and np.isnan(alarm.excess)
        assert alarm.joint == robot.joint_names[rows.joint[largest]] and alarm.window == rows.window[largest]
        # Without a proof the row furthest from the best target in the box is named.
        other = describe_inconsistency(problem, self.labels(robot, rows))
        assert other.code is AlarmCode.JOINTLY_INCONSISTENT and other.joint in robot.joint_names
        compacted = dataclasses.replace(rows, window=np.full(len(rows), -1))
        old = describe_inconsistency(problem, self.labels(robot, compacted), combination)
        assert (old.joint, old.window) == (None, None) and "earlier windows together" in old.text

    def test_positions_that_do_not_follow_the_velocities(self, robot, tools, dumbbell):
        block = record_change(robot, tools, dumbbell, dumbbell, seconds=0.6)
        model = WindowModel(robot, SETTINGS, describe_unknowns(robot, SETTINGS))
        windows, _ = SampleStream(robot, SETTINGS).add(block)
        assert all(check_sensors(model, window) is None for window in windows)
        q = block.q.copy()
        q[320:, 2] += 0.05
        windows, _ = SampleStream(robot, SETTINGS).add(dataclasses.replace(block, q=q))
        alarms = {window.number: check_sensors(model, window) for window in windows}
        (number,) = (number for number, alarm in alarms.items() if alarm is not None)
        alarm = alarms[number]
        assert (alarm.code, alarm.joint, alarm.window) == (AlarmCode.SENSOR_MISMATCH, robot.joint_names[2], number)
        assert number == 3 and 0.04 < alarm.excess < 0.06


class TestStream:
    def notices(self, robot, block, settings, first=15):
        """Notices with the number of the window (from 0) after which they came."""
        estimator = StreamingEstimator(robot, settings)
        found = []
        for start in range(0, len(block), 100):
            for text in estimator.add(block.slice(start, start + 100)):
                found.append((start // 100 - 1, text))
        return estimator, found

    def test_a_change_is_noticed_long_before_the_bounds_are_renewed(self, robot, changed, dumbbell):
        parts, build = windows_of(robot, changed)
        expected, _, _ = first_inconsistency(parts, build)
        settings = dataclasses.replace(SETTINGS, detect_payload_change=True)
        estimator, found = self.notices(robot, changed, settings)
        assert [window for window, _ in found] == [expected] and expected < 15
        assert "estimate restarted after" in found[0][1] and f"in window {expected}" in found[0][1]
        assert estimator.estimate().contains(np.zeros(10))
        estimator, found = self.notices(robot, changed, SETTINGS)
        assert not estimator.estimate().is_consistent and found[0][0] == expected

    @pytest.mark.slow
    def test_also_after_bounds_were_renewed_and_rows_compacted(self, robot, tools, dumbbell):
        """The same arm and motion for 4.5 s with and then without most of the payload."""
        rng, motion = np.random.default_rng(4), tools.FourierMotion(robot, 4)
        theta = sample_parameters(robot, rng, corner=True)
        blocks = [tools.record(robot, theta, payload, motion, 5.5) for payload in (dumbbell, 0.4 * dumbbell)]
        tau = np.where((blocks[0].seconds <= 4.75)[:, None], blocks[0].tau, blocks[1].tau)
        block = tools.measure(robot, blocks[0].q, blocks[0].v, tau, rng)
        settings = EstimatorSettings(detect_payload_change=True, bound_tolerance=1e-2)
        estimator, found = self.notices(robot, block, settings)
        assert len(found) == 1 and 46 <= found[0][0] < 59  # the next renewal is after window 59
        # At most one window later than all rows since the start allow, none of them compacted.
        parts, build = windows_of(robot, block)
        assert is_possible(build(Rows.stack(parts[: found[0][0]])))
        assert estimator.estimate().contains(0.4 * dumbbell)

    def test_the_check_costs_few_searches(self, robot, tools, dumbbell, monkeypatch):
        count = []
        original = module.find_feasible_point
        monkeypatch.setattr(module, "find_feasible_point", lambda *words: count.append(0) or original(*words))
        block = record_change(robot, tools, dumbbell, dumbbell, seconds=2.0)
        estimator, found = self.notices(robot, block, EstimatorSettings(update_windows=10, bound_tolerance=1e-2))
        assert found == [] and estimator.estimate().number_of_windows >= 19
        assert len(count) <= 9
