"""Calibrates an arm from any recording: assumptions that the data contradict are opened, the least first, and named.

The hypotheses are those of :mod:`.hypotheses`: the single change that explains the rows best in units of the usual, or
the smallest sum of changes, by one linear program. An opened assumption may be off by twice the needed change; the
calibration then bounds it with everything else. The bounds hold if nothing else is off, and by no more: a hypothesis is
no proof.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.bounds.agreement import MOST_LAG
from sysid_ros.core.estimation.calibration import (
    CalibrationInconsistent,
    CalibrationProgress,
    KnownLoad,
    LoadedRecording,
    calibrate_arm,
)
from sysid_ros.core.estimation.friction_law import FrictionLaw
from sysid_ros.core.estimation.hypotheses import Assumption, try_assumption, usual_change
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.relaxed_rows import Change, RelaxedRows, join_blocks
from sysid_ros.core.estimation.whole_arm import Motion, TermTest, WholeArmFit, fit_whole_arm, select_friction
from sysid_ros.core.model.calibrated import open_arm
from sysid_ros.core.model.calibration import ArmCalibration, CalibrationRecord, Opening, opened_settings
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

LOAD, TORQUE_ERROR, LAG, TILT = "load", "torque_error", Assumption.TORQUE_LAG.value, Assumption.GRAVITY.value
_SINGLE = (
    Assumption.TORQUE_GAIN, Assumption.TORQUE_OFFSET, Assumption.FRICTION, Assumption.GRAVITY, Assumption.TORQUE_LAG
)  # fmt: skip
_ROOM = 2.0
"""Factor of the opened over the needed change [-]."""
_UNKNOWN_LOAD = 5.0
"""A wrong load is as unusual as a change by this multiple of the usual one [-]."""
_LAST_RESORT = 10.0
"""An error of the torque that nothing explains costs as much as so many times the offset [-]."""
_MOST = 20.0
"""Larger changes, in units of the usual, are no result: another arm, other units [-]."""
_STEP, _LEAST_LAG, _LARGEST_TILT = 0.01, 0.005, 0.2
"""Step of the derivative by the lag [s], smallest error of a lag [s], largest tilt [rad]."""
_ROUNDS = 10
"""After so many rounds the contradiction stands."""


@dataclass(frozen=True)
class HeldOutFit:
    """A fit of an arm, and how well fits of halves of its recordings predict the other halves.

    Attributes:
        fit: The fit of all data, with the friction terms that held-out blocks support.
        tests: The tests of these terms.
        halves: The fits of the halves, with simple friction.
        residual: RMS error of their predictions of the other half, below 3 Hz, (n,) [Nm].
        nominal: The same with the nominal model, (n,) [Nm].
    """

    fit: WholeArmFit
    tests: tuple[TermTest, ...]
    halves: tuple[WholeArmFit, WholeArmFit]
    residual: Array
    nominal: Array

    @property
    def lag(self) -> Opening | None:
        """The lag that both halves show; None where it hides below the errors that bounds allow for."""
        lags = [half.torque_lag for half in self.halves]
        center, spread = 0.5 * sum(lags), abs(lags[1] - lags[0])
        if min(lags) < MOST_LAG or spread > 0.5 * center:
            return None
        return Opening(LAG, "", center, max(_LEAST_LAG, spread))


def fit_halves(robot: RobotModel, recordings: Sequence[LoadedRecording]) -> HeldOutFit:
    """Fit the arm to recordings, and predict each half of them from a fit of the other half.

    Raises:
        SysidError: They are too short.
    """
    parts: tuple[list[Motion], ...] = ([], [], [])
    for recording in recordings:
        samples, load = join_blocks(recording.blocks), recording.load.prior.nominal
        if samples is None:
            raise SysidError(f"{recording.name}: there are no samples to fit")
        middle = len(samples) // 2
        for motions, part in zip(parts, (samples.slice(0, middle), samples.slice(middle), samples), strict=True):
            motions.append(Motion.of(part, robot, load))
    has_armature = robot.sensors.effort_meaning.has_armature
    halves = [fit_whole_arm(robot, motions, FrictionLaw(has_armature=has_armature)) for motions in parts[:2]]
    squares = []
    for fits in (halves, [WholeArmFit.nominal(robot)] * 2):
        rest = [
            one.slow(one.tau - fit.predict(robot, one)) for fit, k in zip(fits, (1, 0), strict=True) for one in parts[k]
        ]
        squares.append(np.sqrt(np.mean(np.concatenate(rest) ** 2, axis=0)))
    law = FrictionLaw((0.05, 0.2), has_asymmetry=True, has_load=True, has_armature=has_armature)
    fit, tests = select_friction(robot, parts[2], law)
    return HeldOutFit(fit, tests, (halves[0], halves[1]), squares[0], squares[1])


def calibrate_openly(
    robot: RobotModel,
    recordings: Sequence[LoadedRecording],
    record: CalibrationRecord,
    settings: EstimatorSettings,
    on_progress: Callable[[CalibrationProgress], None] = lambda progress: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_opening: Callable[[Opening], None] = lambda opening: None,
) -> ArmCalibration:
    """Calibrate an arm; open assumptions that the recordings contradict until they agree.

    Args:
        robot: The arm with the box assumed to hold its parameters.
        recordings: Recordings of this arm.
        record: Serial number, dates, and assumptions open from the start.
        settings: Settings of the estimator.
        on_progress: Called with every step of the work.
        is_cancelled: Ends the work.
        on_opening: Called with every opened assumption.

    Returns:
        The calibration; its record has the opened assumptions.

    Raises:
        CalibrationInconsistent: No change that can be opened explains the data.
        SysidError: See :func:`calibrate_arm`.
    """
    openings = {(one.assumption, one.subject): one for one in record.openings}
    for number in range(_ROUNDS):
        opened = tuple(openings.values())
        arm, assumed = open_arm(robot, opened), replace(settings, **opened_settings(opened))
        loads = {one.subject for one in opened if one.assumption == LOAD}
        held = [_with_unknown_load(robot, one) if one.name in loads else one for one in recordings]
        try:
            whole = replace(record, openings=opened)
            return calibrate_arm(arm, held, whole, assumed, on_progress, is_cancelled, number == _ROUNDS - 1)
        except CalibrationInconsistent as error:
            is_of_sensors = isinstance(error.alarm, Alarm) and error.alarm.code == AlarmCode.SENSOR_MISMATCH
            found = () if is_of_sensors or number == _ROUNDS - 1 else find_openings(arm, held, assumed)
            if not found:
                raise
            for one in found:
                key = (one.assumption, one.subject)
                openings[key] = _merge(openings.get(key), one)
                on_opening(openings[key])
    raise AssertionError("unreachable")


def _merge(old: Opening | None, new: Opening) -> Opening:
    if old is None or new.assumption in (LOAD, TILT):
        return new
    if new.assumption == LAG:
        return replace(new, radius=min(max(new.radius, abs(new.center - old.center)), 0.05))
    return replace(new, radius=max(old.radius + new.radius, _ROOM * old.radius), least=old.radius + new.least)


def _with_unknown_load(robot: RobotModel, recording: LoadedRecording) -> LoadedRecording:
    return replace(
        recording, load=KnownLoad(f"something within the prior '{robot.payload_prior.name}'", robot.payload_prior)
    )


def find_openings(
    robot: RobotModel, recordings: Sequence[LoadedRecording], settings: EstimatorSettings
) -> tuple[Opening, ...]:
    """Find the smallest openings with which recordings are feasible; empty where none suffice."""
    settings = replace(settings, body="payload", target="payload")
    rows: dict[tuple[str, bool], RelaxedRows] = {}
    is_open = robot.payload_prior.target == "payload"  # else it does not describe the hand's content
    for recording in recordings:
        for one in (recording, *([_with_unknown_load(robot, recording)] if is_open else [])):
            found = _collect(robot, one, settings)
            if found is not None:
                rows[recording.name, one is not recording] = found
    names = list(dict.fromkeys(name for name, _ in rows))
    if not names:
        return ()

    def joined(unknown: Sequence[str]) -> RelaxedRows:
        return RelaxedRows.join([rows[name, name in unknown] for name in names])

    closed = [one.name for one in recordings if (one.name, True) in rows and one.load.prior is not robot.payload_prior]
    data = joined(())
    misfit = data.misfit(data.r)
    scale = min(1.0, 0.9 * misfit)
    single: list[tuple[float, Opening]] = []
    for assumption in _SINGLE:
        for change in try_assumption(data, assumption, misfit):
            j = 0 if change.joint is None else robot.joint_names.index(change.joint)
            most = abs(change.amount) + 3.0 * usual_change(data, assumption, j)
            best = change.amount if change.best is None else float(np.clip(change.best, -most, most))
            opening = _opening(settings, assumption.value, change.joint or "", change.amount, best)
            single += [(change.rank, opening)] if change.change <= _MOST else []
    for name in closed:
        other = joined([name])
        if (rest := other.misfit(other.r)) <= scale:
            single.append((_UNKNOWN_LOAD * rest, Opening(LOAD, name)))
    if single:
        return (min(single, key=lambda entry: entry[0])[1],)
    if any(list(try_assumption(one, Assumption.EFFORT_SIGN, misfit)) for one in (data, joined(closed))):
        return ()  # nothing uncertain: it is to be corrected
    several = [_open_several(data, settings, scale)]
    if closed:
        cost, _ = _open_several(joined(closed), settings, scale)  # openings beside the loads come next
        several.append((cost + _UNKNOWN_LOAD * len(closed), tuple(Opening(LOAD, name) for name in closed)))
    return min(several, key=lambda entry: entry[0])[1]


def _collect(robot: RobotModel, recording: LoadedRecording, settings: EstimatorSettings) -> RelaxedRows | None:
    samples = join_blocks(recording.blocks)
    arm = replace(robot, payload_prior=recording.load.prior)
    return None if samples is None else RelaxedRows.collect(arm, settings, samples)


def _opening(settings: EstimatorSettings, name: str, subject: str, least: float, best: float) -> Opening:
    """Return the opening where a change of this size is needed at least, and another fits best."""
    if name == LAG:
        center = settings.torque_lag + best
        return Opening(LAG, "", max(center, 0.0), min(max(_LEAST_LAG, 0.5 * abs(best), -center), 0.05), abs(least))
    radius = _ROOM * max(abs(least), abs(best))
    if name == TILT:
        return Opening(TILT, "", 0.0, min(settings.gravity_cone + radius, _LARGEST_TILT), settings.gravity_cone + least)
    return Opening(name, subject, 0.0, radius, abs(least))


def _open_several(data: RelaxedRows, settings: EstimatorSettings, scale: float) -> tuple[float, tuple[Opening, ...]]:
    """Return the smallest sum of changes, in units of the usual, that makes rows feasible, and its openings."""
    count, strength = len(data.r), float(np.linalg.norm(data.robot.gravity))
    none, parts = np.zeros(count), list[tuple[str, int, Array, Array, float, float]]()
    slope = (data.lagged(_STEP) - data.lagged(-_STEP)) / (2.0 * _STEP)
    slope = np.where(np.isfinite(slope), slope, 0.0)
    for sign in (1.0, -1.0):
        parts.append((LAG, 0, -sign * slope, none, sign, usual_change(data, Assumption.TORQUE_LAG, 0)))
        for axis in range(2):
            size = strength * usual_change(data, Assumption.GRAVITY, 0)
            parts.append((TILT, 0, sign * data.tilt[:, axis], none, sign / strength, size))
    for j in range(data.robot.n):
        at = data.joint == j
        offset, gain, friction = (
            usual_change(data, one, j)
            for one in (Assumption.TORQUE_OFFSET, Assumption.TORQUE_GAIN, Assumption.FRICTION)
        )
        for sign in (1.0, -1.0):
            parts.append(("torque_offset", j, sign * at * data.seconds, none, sign, offset))
            parts.append(("torque_gain", j, -sign * at * data.torque, none, sign, gain))
        parts.append(("friction", j, at * data.sign, at * data.unsure, 1.0, friction))
        speed = max(float(data.speed[j]), 1e-6)
        parts.append(("friction", j, at * data.travel, none, 1.0, friction / speed))
        parts.append((TORQUE_ERROR, j, none, at * data.seconds, 1.0, offset / _LAST_RESORT))
    gains, widens = (np.stack([part[k] for part in parts], axis=1) for k in (2, 3))
    cost = np.array([1.0 / part[5] for part in parts])
    least = data.least(Change(data.r, gains, widens, cost, np.full(len(parts), np.inf)), scale)
    if least is None or cost @ least[0] > _MOST:
        return np.inf, ()
    total: dict[tuple[str, str], list[float]] = {}
    for (name, j, *_, unit, _), size in zip(parts, least[0], strict=True):
        if size > 1e-7:
            subject = "" if name in (LAG, TILT) else data.robot.joint_names[j]
            total.setdefault((name, subject), []).append(unit * float(size))
    found = []
    for (name, subject), sizes in total.items():
        size = float(np.linalg.norm(sizes)) if name == TILT else sum(sizes)
        found.append(_opening(settings, name, subject, size, size))
    return float(cost @ least[0]), tuple(found)
