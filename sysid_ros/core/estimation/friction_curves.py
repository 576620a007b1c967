"""Friction by speed with guaranteed intervals, from recordings of slow motions in both directions.

In every window in which a joint surely moves one way, what it feels besides the rigid bodies is an unknown of its own:
one for each class of speeds and each direction, whatever the law of friction. Half the difference of both directions is
friction, half the sum is the offset of the torque. All windows of a joint share the uncertain bodies, so what gravity
needs cancels where the arm comes by in both directions. docs/theory/whole_arm.md says what is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.bounds.set_membership import bound_by_membership
from sysid_ros.core.estimation.calibration import (
    CalibrationInconsistent,
    LoadedRecording,
    Work,
    collect_rows,
    join_recordings,
)
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import Unknowns
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.model.robot import FRICTION, INERTIAL, EffortMeaning, RobotModel

Array = NDArray[np.float64]

_RATIO = 1.3
"""Ratio of the speeds that a class begins and ends with."""
_LEAST_WINDOWS = 2
"""Windows that a class needs in each direction."""
_MOST_CLASSES, _MOST_RESTS = 6, 4
"""Classes, and rests, of each joint that are bounded: those with the most windows, the longest."""
_TOLERANCE = 0.02
_JITTER, _COULOMB, _ENCODER = (ERROR_TERMS.index(name) for name in ("jitter", "coulomb", "encoder"))


class NoSlowMotion(SysidError):
    """Recordings in which no joint moves in both directions at about the same speed."""

    def __init__(self) -> None:
        super().__init__(
            "no joint moves in both directions at about one speed, in two windows each at least: record a slow motion "
            "there and back, such as a sweep of sysid calibrate run --sweep"
        )


@dataclass(frozen=True)
class FrictionCurve:
    """Friction of a joint by speed, in B classes of speeds, slow ones first.

    Attributes:
        joint: The joint.
        speeds: Mean speed of each class, (B,) [rad/s].
        windows: Number of windows in each, forwards and backwards, (B, 2).
        forwards: What the joint feels besides the rigid bodies while it moves forwards, (B,) [Nm].
        backwards: The same backwards, (B,) [Nm].
        friction: Half their difference, (B,) [Nm].
        offset: Half their sum, (B,) [Nm].
        rise: How much more friction each class but the first has than the first, (B - 1,) [Nm].
        shift: How much more offset, (B - 1,) [Nm].
        rests: What the joint feels in the last window that counts of each of its longest rests, (R,) [Nm].
    """

    joint: str
    speeds: Array
    windows: NDArray[np.intp]
    forwards: Box
    backwards: Box
    friction: Box
    offset: Box
    rise: Box
    shift: Box
    rests: Box

    @property
    def falls_with_speed(self) -> bool:
        """Whether friction is proven to be less in some faster class than in the slowest: Stribeck friction."""
        return bool(np.any(self.rise.upper < 0.0))

    @property
    def is_asymmetric(self) -> bool:
        """Whether both directions are proven to differ by more than an offset."""
        return bool(np.any((self.shift.upper < 0.0) | (self.shift.lower > 0.0)))


def certain_speed(robot: RobotModel, settings: EstimatorSettings, period: float) -> Array:
    """Return the measured speed above which the direction of each joint is certain at this period [s], (n,) [rad/s]."""
    drift = 0.5 * settings.acceleration_factor * robot.limits.a_max * (period + 2.0 * robot.sensors.stamp_jitter)
    return np.asarray(robot.link_sensors.velocity_error + drift + settings.stiction_speed)


def measure_friction(
    robot: RobotModel,
    recordings: Sequence[LoadedRecording],
    settings: EstimatorSettings | None = None,
    offset_change: Array | None = None,
    on_progress: Callable[[float, str], None] = lambda share, text: None,
    is_cancelled: Callable[[], bool] = lambda: False,
) -> tuple[FrictionCurve, ...]:
    """Bound the friction of each joint by speed and direction.

    Within a class friction is linear in the speed: its slope is F_v in the box of the robot, and besides up to what
    ``stribeck_friction`` and ``friction_asymmetry`` allow for. From class to class and from one direction to the other
    it may be anything up to the torque limit. ``friction_ripple`` and ``load_friction`` widen the intervals.

    Args:
        robot: The arm with the box that is known to hold its parameters.
        recordings: Recordings of this arm, slow ones in both directions among them.
        settings: Windows and assumptions of the estimator.
        offset_change: How much each torque offset may differ between recordings, (n,) [Nm]; none by default.
        on_progress: Called with the share of the work that is done, 0..1, and what is done.
        is_cancelled: Ends the work with ``CalibrationCancelled``.

    Returns:
        A curve for each joint; without classes where it did not move both ways at one speed.

    Raises:
        NoSlowMotion: No joint did.
        CalibrationInconsistent: No friction explains the data.
        CalibrationShortOfData: There is no window in a recording.
        CalibrationCancelled: It was cancelled.
    """
    if not recordings:
        raise SysidError("there is no recording to measure friction from; give at least one")
    settings = replace(settings or EstimatorSettings(), body="payload", target="payload")
    if robot.sensors.effort_meaning is EffortMeaning.LINK_SIDE:
        settings = replace(settings, friction_range=max(settings.friction_range, 1.0))
    arm = replace(robot.with_gripper(settings.gripper), calibration=None)
    # How much friction creep speeds and directions add is what is measured; only slopes inside a class are assumed.
    stribeck, asymmetry = settings.stribeck_friction / settings.stribeck_speed, settings.friction_asymmetry
    settings = replace(settings, gripper="", stribeck_friction=0.0, friction_asymmetry=0.0)
    change = np.zeros(robot.n) if offset_change is None else np.asarray(offset_change, dtype=float)
    work = Work(
        sum(len(recording.blocks) for recording in recordings),
        lambda progress: on_progress(progress.share, progress.phase),
        is_cancelled,
        passes=1,
    )
    parts = []
    for recording in recordings:
        rows, unknowns = collect_rows(arm, recording, settings, change, work)
        parts.append((rows, unknowns, recording.load.prior.box))
    problem, unknowns, stacked = join_recordings(parts, change), parts[0][1], Rows.stack([rows for rows, _, _ in parts])
    slope = stribeck * unknowns.coulomb_upper + asymmetry * unknowns.viscous_upper
    curves = []
    for joint in range(robot.n):
        work.tell(f"friction of {robot.joint_names[joint]}", 0.5 + 0.5 * joint / robot.n)
        curves.append(_Joint(arm, joint, stacked, problem, unknowns, float(slope[joint])).bound())
    if not any(curve.speeds.size for curve in curves):
        raise NoSlowMotion
    return tuple(curves)


class _Joint:
    """The windows of a joint with its friction as unknowns of their own."""

    def __init__(self, robot: RobotModel, joint: int, rows: Rows, problem: Problem, unknowns: Unknowns, slope: float):
        self._robot, self._joint, self._problem, self._unknowns = robot, joint, problem, unknowns
        self._slope = slope  # how much steeper than F_v friction may be inside a class, either way [Nm s/rad]
        self._index = np.flatnonzero(rows.joint == joint)
        own = rows.select(self._index)
        first = INERTIAL * robot.n + FRICTION * joint
        self._columns = {name: first + entry for name, entry in (("F_c", 0), ("F_v", 1), ("beta", 3))}
        self._duration, self._turn = own.b[:, self._columns["beta"]], own.b[:, self._columns["F_v"]]
        certain = own.b[:, self._columns["F_c"]] / self._duration
        is_whole = np.abs(np.abs(certain) - 1.0) < 1e-9
        self._direction = np.where(is_whole, np.sign(certain), 0.0)
        self._speed = np.abs(self._turn) / self._duration
        self._is_at_rest = (np.abs(certain) < 1e-9) & (self._speed < 1e-3)
        self._window, self._stop, self._start = own.window, own.stop, own.start

    def bound(self) -> FrictionCurve:
        """Bound what the joint feels in each class and rest."""
        classes, rests = self._classes(), self._rests()
        count = len(classes)
        speeds = np.array([np.average(self._speed[part], weights=self._duration[part]) for part in classes])
        order = np.argsort(speeds)
        classes, speeds = [classes[k] for k in order], speeds[order]
        windows = np.array(
            [[np.sum(self._direction[part] == way) for way in (1.0, -1.0)] for part in classes], dtype=np.intp
        )
        windows = windows.reshape(count, 2)
        eye = np.eye(2 * count + len(rests))
        forwards, backwards, still = eye[: 2 * count : 2], eye[1 : 2 * count : 2], eye[2 * count :]
        half, mean = 0.5 * (forwards - backwards), 0.5 * (forwards + backwards)
        name, none = self._robot.joint_names[self._joint], Box(np.zeros(0), np.zeros(0))
        if not count:
            return FrictionCurve(name, speeds, windows, *([none] * 7))
        wanted = [forwards, backwards, half, mean, half[1:] - half[:1], mean[1:] - mean[:1], still]
        found = self._solve(classes, speeds, rests, np.concatenate(wanted))
        edges = np.cumsum([len(part) for part in wanted])[:-1]
        pairs = zip(np.split(found.lower, edges), np.split(found.upper, edges), strict=True)
        return FrictionCurve(name, speeds, windows, *(Box(*pair) for pair in pairs))

    def _classes(self) -> list[NDArray[np.intp]]:
        """Return the windows of each class of speeds that the joint moves at in both directions."""
        moving = np.flatnonzero(self._direction != 0.0)
        if not moving.size:
            return []
        slowest = self._speed[moving].min()
        number = np.rint(np.log(self._speed[moving] / slowest) / np.log(_RATIO)).astype(int)
        found = [moving[number == k] for k in np.unique(number)]
        ways = [min(np.sum(self._direction[part] == way) for way in (1.0, -1.0)) for part in found]
        enough = [k for k in np.argsort(ways)[::-1] if ways[k] >= _LEAST_WINDOWS]
        return [found[k] for k in enough[:_MOST_CLASSES]]

    def _rests(self) -> list[NDArray[np.intp]]:
        """Return the last window of each of the longest rests: what holds a joint may change while it rests.

        Where all joints rest only some windows count; those whose numbers are left out belong to the rest, too.
        """
        still = np.flatnonzero(self._is_at_rest)
        if not still.size:
            return []
        after, before = still[1:], still[:-1]
        is_skipped = self._window[after] > self._window[before] + 1
        follows = (after == before + 1) & (is_skipped | (self._start[after] == self._stop[before]))
        runs = np.split(still, np.flatnonzero(~follows) + 1)
        runs.sort(key=lambda run: self._stop[run[-1]] - self._start[run[0]], reverse=True)
        return [run[-1:] for run in runs[:_MOST_RESTS]]

    def _solve(
        self, classes: list[NDArray[np.intp]], speeds: Array, rests: list[NDArray[np.intp]], objectives: Array
    ) -> Box:
        """Bound combinations (K, 2 B + R) of what is felt in each class and direction and in each rest, (K,)."""
        problem, unknowns = self._problem, self._unknowns
        # Windows of no class say nothing: only those of classes and rests are rows.
        kept = np.sort(np.concatenate([*classes, *rests]))
        index, place = self._index[kept], np.full(self._index.size, -1)
        place[kept] = np.arange(kept.size)
        used = np.flatnonzero(unknowns.radius > 1e-100)
        b = problem.y[index].copy()
        shared = {name: np.flatnonzero(used == column) for name, column in self._columns.items()}
        center = {name: unknowns.center[column] for name, column in self._columns.items()}
        largest = float(self._robot.limits.tau_max[self._joint])
        own = np.zeros((index.size, 2 * len(classes) + len(rests)))
        slopes, encoder = np.zeros_like(own), float(self._robot.link_sensors.position_resolution[self._joint])
        r, errors = problem.r[index].copy(), problem.errors[index].copy()
        groups = [
            (part[self._direction[part] == way], way, speed)
            for part, speed in zip(classes, speeds, strict=True)
            for way in (1.0, -1.0)
        ]
        groups += [(part, 0.0, 0.0) for part in rests]
        for column, (part, way, speed) in enumerate(groups):
            rows, duration, turn = place[part], self._duration[part], self._turn[part]
            own[rows, column] = duration
            # Friction is that at the mean speed of the class, and F_v times what the window's is off by.
            off = (turn - way * speed * duration) * abs(way)
            r[rows] += center["F_c"] * way * duration + center["beta"] * duration
            r[rows] += center["F_v"] * (turn - off)
            b[np.ix_(rows, shared["F_c"])] = 0.0
            b[np.ix_(rows, shared["beta"])] = 0.0
            b[np.ix_(rows, shared["F_v"])] = off[:, None]
            slopes[rows, column] = off
            errors[rows, _ENCODER] += abs(way) * self._slope * encoder
            errors[rows, _COULOMB] = 0.0  # the sign is certain, or counts in the rest's own unknown
            errors[rows, _JITTER] += 2.0 * self._robot.sensors.stamp_jitter * largest
        _, instants = np.unique(problem.end_index[index], return_inverse=True)
        count = own.shape[1]
        radius = np.full(count, largest)
        one = replace(
            problem,
            center=np.zeros(count),
            radius=radius,
            y=own,
            b=np.concatenate([b, problem.b[index], slopes], axis=1),
            delta_radius=np.concatenate([problem.radius, problem.delta_radius, np.full(count, self._slope)]),
            ends=problem.ends[index],
            end_index=instants.reshape(index.size, 2),
            r=r,
            errors=errors,
            theta_size=radius,
            joints=1,
            objectives=objectives,
        )
        sided = bound_by_membership(one, _TOLERANCE)
        if sided.infeasibility is not None or np.any(sided.lower > sided.upper):
            name = self._robot.joint_names[self._joint]
            raise CalibrationInconsistent("all recordings together", f"no friction of {name} explains its torques")
        reach = np.abs(objectives).sum(axis=1) * largest
        return Box(np.maximum(sided.lower, -reach), np.minimum(sided.upper, reach))
