"""Asks whether the numbers of a recording make sense for its arm, before anything is computed from them.

Whatever a file holds passes here once: garbage and repeats are left out, angles are unfolded, velocities are compared
with positions and efforts with the torques that the arm needs. What can be mended is mended with a notice; anything
else is refused with the finding, its effect and the words to type.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.windows.samples import InvalidSamples, SampleBlock
from sysid_ros.core.model.robot import FRICTION, INERTIAL, RobotModel
from sysid_ros.reports.recordings.options import InvalidRecording, ReadOptions
from sysid_ros.reports.recordings.readers import Recording, counted, describe_gaps, estimate_velocity

Array = NDArray[np.float64]

_TINY, _HUGE = 1e-100, 1e30
"""Numbers that no sensor sends: smaller (uninitialised memory) or larger ones are missing."""
_TURN = 2.0 * np.pi
_SLACK = 0.5
"""A joint is read as far outside its limits as this [rad]; vendors' limits and zeros differ."""
_REPEATED = 0.2
"""Share of the steps of a moving arm that change nothing, from which on a slow source was republished."""
_COMPARED = 300
"""Samples whose torques are compared with the model."""
_SPAN = 0.02
"""Accelerations are differences of velocities over about so long [s]."""
_STICTION = 0.02
"""Speed at which Coulomb friction is nearly whole [rad/s]."""
_GOOD = 0.1
"""Share of the efforts that may stay unexplained before another reading of them is considered."""
_CLEARLY = 0.5
"""Another reading has to leave less unexplained than this part of the plain one's residual."""
_UNCLEAR = 0.5
"""Efforts of which this share stays unexplained whatever their sign show no gravity."""
_AWAY = 1.3
"""A scale nearer to 1 than this factor is a matter of gains, not of units."""
_MUCH = 0.04
"""Joints with so much of the largest weight show the scale of their efforts."""
_HEAVIER = 3.0
"""Payloads of so many times the prior are thought of before efforts count as too large."""
_FACTOR = 2.0
"""With a mass of a body known no better than this, odd efforts may come from another arm in the box."""
_POOR = 0.3
"""Efforts far too small of which any scale leaves more unexplained have no gravity in them, as external torques."""
_SCALES = np.geomspace(1e-3, 1e4, 71)


@dataclass(frozen=True)
class RawSamples:
    """N samples as a file gives them, in SI units and the robot's joint order; a number that is missing is none.

    Attributes:
        stamps: Rising, (N,) int64 [ns].
        q: Measured positions, (N, n) [rad].
        v: Measured velocities, (N, n) [rad/s]; None where the file has none.
        tau: Efforts, (N, n) [Nm], or in the unit that ``effort_scale`` turns into it.
        notices: What was found and mended, a sentence each.
        caveats: Why no bounds from these samples are guaranteed, a sentence each.
    """

    stamps: NDArray[np.int64]
    q: Array
    v: Array | None
    tau: Array
    notices: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()

    def take(self, kept: NDArray[np.bool_], *notices: str) -> RawSamples:
        """Return some of the samples, with notices added."""
        v, told = None if self.v is None else self.v[kept], (*self.notices, *notices)
        return replace(self, stamps=self.stamps[kept], q=self.q[kept], v=v, tau=self.tau[kept], notices=told)


def make_recording(
    path: Path, robot: RobotModel, raw: RawSamples, options: ReadOptions, usual_sign: float | None = None
) -> Recording:
    """Make a recording of raw samples: mended, in joint direction, and with velocities.

    Args:
        path: The file, for errors.
        robot: The arm.
        raw: The samples.
        options: What was stated about them.
        usual_sign: Sign of the efforts in files of this form where none is stated; None asks gravity.

    Raises:
        InvalidRecording: The numbers do not fit this arm.
        ParameterOutOfRange: A scale is stated of a joint that it does not have.
    """
    if unknown := sorted(set(options.effort_scale) - {"", *robot.joint_names}):
        raise ParameterOutOfRange("--effort-scale", unknown[0], f"a number, or JOINT=NUMBER, of {robot.joint_names}")
    scale = options.effort_scale
    scales = np.array([scale.get(name, scale.get("", 1.0)) for name in robot.joint_names])
    stated = "efforts were scaled as stated; bounds hold if that is right within effort_gain_error of the arm"
    notices = (*raw.notices, stated) if np.any(scales != 1.0) else raw.notices
    raw = _without_garbage(replace(raw, tau=raw.tau * scales, notices=notices))
    raw = _unfolded(robot, raw)
    _require_possible(path, robot, "position", raw.q)
    if raw.v is not None:
        _require_possible(path, robot, "velocity", raw.v)
    raw = _with_good_velocity(path, robot, raw)
    whole = np.asarray(np.isfinite(np.hstack([raw.q, raw.tau, raw.q if raw.v is None else raw.v])).all(axis=1))
    has_none = np.asarray((np.nan_to_num(raw.tau) == 0.0).all(axis=0))
    if options.needs_torques and has_none.any():
        joint = robot.joint_names[int(np.flatnonzero(has_none)[0])]
        found, allowed = "missing, or zero throughout", "measured torques: without them no payload can be known"
        raise InvalidRecording(path, f"the effort of {joint}", found, allowed)
    lacking = int(np.count_nonzero(~whole))
    if len(whole) - lacking < 2:
        raise InvalidRecording(path, "the number of samples with all joints", len(whole) - lacking, "at least 2")
    text = f"{counted(lacking, 'sample')} left out in which a number is missing"
    raw = _without_republished(raw.take(whole, *([text] if lacking else [])))
    recording = _with_velocity(path, robot, raw)
    _require_possible(path, robot, "velocity", recording.samples.v)
    if options.needs_torques:
        recording = _in_joint_direction(path, robot, recording, options, usual_sign)
    _require_possible(path, robot, "torque", recording.samples.tau)
    return recording


# What is mended


def _without_garbage(raw: RawSamples) -> RawSamples:
    """Make numbers missing that no sensor sends."""
    rows = {name: getattr(raw, name) for name in ("q", "v", "tau") if getattr(raw, name) is not None}
    sizes = {name: np.abs(values) for name, values in rows.items()}
    is_bad = {name: ((size > 0.0) & (size < _TINY)) | (size > _HUGE) for name, size in sizes.items()}
    count = int(np.hstack(list(is_bad.values())).any(axis=1).sum())
    cleaned: dict[str, Any] = {name: np.where(is_bad[name], np.nan, values) for name, values in rows.items()}
    text = f"numbers that no sensor sends (below {_TINY:g}, above {_HUGE:g}) in {counted(count, 'row')} are left out"
    return replace(raw, **cleaned, notices=(*raw.notices, text) if count else raw.notices)


def unwrap(rows: Array) -> Array:
    """Return angles (N, n) without jumps of a turn, where no number is missing."""
    result = rows.copy()
    for joint in range(rows.shape[1]):
        known = np.isfinite(rows[:, joint])
        result[known, joint] = np.unwrap(rows[known, joint])
    return result


def _unfolded(robot: RobotModel, raw: RawSamples) -> RawSamples:
    """Undo angles modulo a turn: no jumps in a joint that turns without end, within the limits in the others."""
    q, told = raw.q.copy(), []
    lower, upper = robot.limits.q_lower - _SLACK, robot.limits.q_upper + _SLACK
    smooth = unwrap(raw.q)
    for joint, name in enumerate(robot.joint_names):
        known = np.isfinite(q[:, joint])
        column, ends = q[known, joint], (lower[joint], upper[joint])
        if not known.any() or np.abs(column).max() > _TURN + 0.01:  # more than a turn, or another unit
            continue
        path = smooth[known, joint]
        if np.isfinite(ends).all():
            middle, is_unique = 0.5 * (ends[0] + ends[1]), ends[1] - ends[0] - 2.0 * _SLACK < _TURN
            is_inside = ends[0] <= column.min() and column.max() <= ends[1]
            if is_inside and (is_unique or np.array_equal(path, column)):
                continue
            path = column if is_unique else path
            path = path - _TURN * np.round(((path if is_unique else path.mean()) - middle) / _TURN)
            if path.min() < ends[0] or path.max() > ends[1]:
                continue
        if not np.array_equal(path, column):
            q[known, joint] = path
            told.append(name)
    text = f"angles of {', '.join(told)} were modulo one turn: jumps of a turn were taken out, and limits kept"
    return replace(raw, q=q, notices=(*raw.notices, text) if told else raw.notices)


def _without_republished(raw: RawSamples) -> RawSamples:
    """Leave out samples that only repeat the one before while the arm moves: a slow source, published fast."""
    rows = np.hstack([raw.q, raw.tau, *([] if raw.v is None else [raw.v])])
    is_new = np.concatenate([[True], (np.diff(rows, axis=0) != 0.0).any(axis=1)])
    fresh = np.flatnonzero(is_new)
    if len(fresh) < 3 or is_new.all():
        return raw
    # At rest a coarse sensor repeats itself rightly; a new sample after a move means that the arm moved.
    moved = np.abs(np.diff(raw.q[fresh], axis=0)).max(axis=1) > 1e-4
    spans = np.diff(fresh)[moved]
    if not spans.size or (spans - 1).sum() < _REPEATED * spans.sum():
        return raw
    period, source = (1e-9 * float(np.median(np.diff(stamps))) for stamps in (raw.stamps, raw.stamps[fresh]))
    text = (
        f"{len(is_new) - len(fresh)} of {len(is_new)} samples repeat the one before while the arm moves: a source of "
        f"{1.0 / source:.3g} Hz published at {1.0 / period:.3g} Hz; repeats were left out"
    )
    late = f"stamps are those of the repetition, up to {1e3 * period:.3g} ms late, which stamp_jitter may not cover"
    return replace(raw.take(is_new, text), caveats=(*raw.caveats, late))


# Velocities


def _with_good_velocity(path: Path, robot: RobotModel, raw: RawSamples) -> RawSamples:
    """Return samples without velocities if they are missing, only zeros, or not the rates of the positions."""
    if raw.v is None:
        return raw
    seconds = 1e-9 * (raw.stamps - raw.stamps[0])
    stride = max(1, int(np.searchsorted(seconds, 0.1)))
    for joint, name in enumerate(robot.joint_names):
        q, v = raw.q[:, joint], raw.v[:, joint]
        why = "missing" if not np.isfinite(v).any() else ""
        known = np.isfinite(q) & np.isfinite(v)
        if np.count_nonzero(known) > 2 * stride:
            at, q, v = seconds[known], q[known], v[known]
            travel = q[stride:] - q[:-stride]
            told = np.concatenate([[0.0], np.cumsum(0.5 * (v[1:] + v[:-1]) * np.diff(at))])
            told = told[stride:] - told[:-stride]
            moves = np.ptp(q) > 100.0 * robot.sensors.position_resolution[joint] + 1e-3
            slope = float(travel @ told) / float(travel @ travel) if moves else 1.0
            for ratio, unit in ((slope, "v=deg/s"), (1.0 / slope if slope > 0.0 else 0.0, "q=deg")):
                if np.rad2deg(0.8) < ratio < np.rad2deg(1.25):
                    found = f"{slope:.3g} times the change of its positions"
                    cure = f"the same angles in both: say --units '{unit}', or leave the other out if it was said"
                    raise InvalidRecording(path, f"the velocity of {name}", found, cure)
            if moves and not v.any():
                why = "zero although it moves"
            elif np.ptp(q) > 0.05 and not 0.5 < slope < 2.0:
                why = f"{slope:.2g} times the change of its positions"
        if why:
            text = f"the velocity of {name} is {why}; all velocities are computed from positions"
            return replace(raw, v=None, notices=(*raw.notices, text))
    return raw


def _with_velocity(path: Path, robot: RobotModel, raw: RawSamples) -> Recording:
    """Return a recording with velocities, from positions where there are none, and pieces where samples were lost."""
    caveats, velocity_error, is_outlier = list(raw.caveats), None, np.zeros(raw.stamps.size, dtype=bool)
    v = raw.v
    if v is None:
        try:
            v, velocity_error, is_outlier = estimate_velocity(raw.stamps, raw.q, robot.sensors.position_resolution)
        except SysidError as error:
            raise InvalidRecording(path, "the velocity", "missing", f"columns of velocities; {error}") from error
        worst = int(np.argmax(velocity_error))
        caveats.append(
            "the velocities were computed from the positions and are taken as good to "
            f"{velocity_error[worst]:.3g} rad/s ({robot.joint_names[worst]}, the others better), which the data "
            "suggest but nothing proves"
        )
    try:
        kept = ~is_outlier
        # The counter jumps where samples are cut out, so no window spans the place.
        samples = SampleBlock(raw.stamps[kept], np.flatnonzero(kept), raw.q[kept], v[kept], raw.tau[kept])
    except InvalidSamples as error:
        raise InvalidRecording(path, error.field, error.reason, "finite numbers in rising order of time") from error
    notices = [*raw.notices, *describe_gaps(samples)]
    starts = np.flatnonzero(np.diff(np.concatenate([[0], is_outlier.astype(np.int8)])) == 1)
    if starts.size:
        notices.append(
            f"{counted(int(np.count_nonzero(is_outlier)), 'sample')} cut out at {counted(starts.size, 'place')}, the "
            f"first {1e-9 * float(raw.stamps[starts[0]] - raw.stamps[0]):.4g} s after the first sample: the positions "
            "jump there as after lost samples, and velocities from them are outliers; the error of the velocities is "
            "that of the other samples"
        )
    made = Recording(path.name, (samples,), (0,), velocity_error=velocity_error, metadata={})
    return replace(made, notices=tuple(notices), caveats=tuple(caveats))


def _require_possible(path: Path, robot: RobotModel, name: str, values: Array) -> None:
    limits = robot.limits
    span = np.maximum(np.abs(limits.q_lower), np.abs(limits.q_upper)) + _SLACK
    largest, unit, hint = {
        "position": (np.where(np.isfinite(span), span, 50.0), "rad", "degrees: say --units 'q=deg'"),
        "velocity": (3.0 * limits.v_max, "rad/s", "degrees per second: say --units 'v=deg/s'"),
        "torque": (5.0 * limits.tau_max, "Nm", "mNm: say --units 'tau=mNm'"),
    }[name]
    excess = np.nan_to_num(np.abs(values) - largest, nan=-1.0)
    if excess.max() > 0.0:
        sample, joint = np.unravel_index(int(np.argmax(excess)), excess.shape)
        raise InvalidRecording(
            path,
            f"the {name} of {robot.joint_names[joint]} in sample {sample}",
            f"{values[sample, joint]:.6g} {unit}",
            f"-{largest[joint]:.4g} to {largest[joint]:.4g} {unit} for this arm (they may be in {hint})",
        )


# Efforts


class EffortComparison:
    """Compares efforts with the torques that an arm with some payload of its prior needs.

    Of each joint the torque is linear in gravity and motion of the nominal arm, in the ten parameters of the payload
    and in the four of its friction; payload and friction are free within their boxes.

    Args:
        robot: The arm.
        samples: Samples in SI units.

    Attributes:
        carrying: Joints that carry so much of the weight that the scale of their efforts shows.
        is_moving: Whether a joint moves by more than 0.02 rad; one posture shows little.
    """

    def __init__(self, robot: RobotModel, samples: SampleBlock):
        n, seconds, last = robot.n, samples.seconds, len(samples) - 1
        reach = max(1, round(0.5 * _SPAN * last / max(seconds[-1], 1e-9)))
        chosen = np.unique(np.linspace(0, last, min(last + 1, _COMPARED)).astype(int))
        before, after = np.maximum(chosen - reach, 0), np.minimum(chosen + reach, last)
        a = (samples.v[after] - samples.v[before]) / (seconds[after] - seconds[before])[:, None]
        q, v, tau = samples.q[chosen], samples.v[chosen], samples.tau[chosen]
        model, data, zero = robot.pin_model, robot.pin_model.createData(), np.zeros(n)
        columns = np.zeros((n, len(chosen), 2 + INERTIAL + FRICTION + 1))  # gravity, motion, payload, friction, effort
        for k in range(len(chosen)):
            columns[:, k, 0] = pin.rnea(model, data, q[k], zero, zero)
            columns[:, k, 1] = pin.rnea(model, data, q[k], v[k], a[k]) - columns[:, k, 0]
            columns[:, k, 2:12] = pin.computeJointTorqueRegressor(model, data, q[k], v[k], a[k])[:, -INERTIAL:]
        friction = (np.tanh(v / _STICTION), v, a, np.ones_like(v))
        columns[:, :, 12:16] = np.stack(friction, axis=-1).transpose(1, 0, 2)
        columns[:, :, 16] = tau.T
        self._r = np.stack([np.linalg.qr(one, mode="r") for one in columns])  # (n, 17 or fewer, 17)
        sides = []
        for side, sign in (("lower", -1.0), ("upper", 1.0)):
            known = robot.friction(getattr(robot.theta_box, side)).copy()
            sticking = robot.friction(robot.theta_box.upper)[:, 0] * np.mean(np.abs(v) < _STICTION, axis=0)
            known[:, 3] += sign * (robot.sensors.effort_absolute_error + sticking)
            sides.append(np.concatenate([getattr(robot.payload_prior.box, side), known.ravel()]) + sign * 1e-9)
        self._box = sides[0], sides[1]
        weight = np.linalg.norm(self._r[:, :, 0], axis=1)
        self.carrying = np.flatnonzero(weight > _MUCH * weight.max())
        self.is_moving = bool(np.ptp(q, axis=0).max() > 0.02)
        self._size = max(float(np.linalg.norm(self._r[:, :, 16])), 1e-12)

    def fit(
        self, scale: float | Array, gravity: float = 1.0, motion: float = 1.0, payload: float = 1.0
    ) -> tuple[float, Array]:
        """Return which share of the efforts stays unexplained, and the torques of the joints in coordinates of rows.

        Args:
            scale: Efforts per torque, of all joints or of each, (n,); negative where they are against the joints.
            gravity: Share of the arm's gravity that is in the efforts.
            motion: The same of the torque of its motion.
            payload: What of the payload prior counts, in size.
        """
        n, rows = self._r.shape[:2]
        each = np.broadcast_to(np.asarray(scale, dtype=float), n)
        known = gravity * self._r[:, :, 0] + motion * self._r[:, :, 1]
        free = np.zeros((n, rows, INERTIAL + FRICTION * n))
        free[:, :, :INERTIAL] = self._r[:, :, 2:12]
        for joint in range(n):
            start = INERTIAL + FRICTION * joint
            free[joint, :, start : start + FRICTION] = self._r[joint, :, 12:16]
        a = (each[:, None, None] * free).reshape(n * rows, -1)
        b = (self._r[:, :, 16] - each[:, None] * known).ravel()
        from scipy.optimize import lsq_linear  # not for help and refusals

        size = np.where(np.arange(a.shape[1]) < INERTIAL, payload, 1.0)
        found = lsq_linear(a, b, (self._box[0] * size, self._box[1] * size), method="bvls")
        return float(np.sqrt(2.0 * found.cost)) / self._size, known + free @ found.x

    def best_scale(self, sign: float) -> tuple[tuple[float, float], float]:
        """Return the range of common scales that explain well, in size, and the residual of the best.

        A heavier payload does with a smaller scale, so data show no more.
        """
        shares = np.array([self.fit(sign * one)[0] for one in _SCALES])
        good = _SCALES[shares < 1.3 * shares.min() + 0.3 * _GOOD]
        return (float(good[0]), float(good[-1])), float(shares.min())

    def best_scales(self, start: float) -> tuple[Array, float]:
        """Return the scales of the joints, (n,), to which a common one leads, and their residual."""
        scales, share = np.full(len(self._r), start), np.inf
        for _ in range(12):
            share, torques = self.fit(scales)
            own = np.sum(self._r[:, :, -1] * torques, axis=1) / np.maximum(np.sum(torques**2, axis=1), 1e-12)
            scales = np.where(own * start > 0.0, own, scales)
        return scales, share

    def shown_sign(self) -> float:
        """Return 1 where gravity shows that efforts are in joint direction, -1 against it, 0 where it shows neither."""
        plain, turned = self.fit(1.0)[0], self.fit(-1.0)[0]
        if min(plain, turned) > min(_UNCLEAR, _CLEARLY * max(plain, turned)):
            return 0.0
        return 1.0 if plain < turned else -1.0


def _in_joint_direction(
    path: Path, robot: RobotModel, recording: Recording, options: ReadOptions, usual_sign: float | None
) -> Recording:
    """Turn efforts into joint direction, as stated or as gravity shows, and refuse all but torques in Nm."""
    notices, caveats = recording.notices, recording.caveats
    compared = EffortComparison(robot, samples := recording.samples)
    shown = compared.shown_sign()
    sign = options.effort_sign or shown or usual_sign or 1.0
    signs = {0.0: (sign, -sign) if options.effort_sign is None else (sign,), sign: (sign,)}.get(shown, ())
    finding = next(filter(None, (_find_fault(robot, compared, one) for one in signs)), None)
    if finding is not None:
        what, found, allowed = finding
        masses = slice(0, INERTIAL * robot.n, INERTIAL)
        if allowed and np.any(robot.theta_box.upper[masses] > _FACTOR * robot.theta_box.lower[masses]):
            found, allowed = f"{found}, unless assumed masses of the arm explain it", ""
        if not allowed:
            notices = (*notices, f"{what} is {found}")
        elif not options.effort_scale:
            raise InvalidRecording(path, what, found, f"{allowed}; --effort-scale 1 takes them as they are")
        else:
            caveats = (*caveats, f"{what} is {found}; taken as stated")
    if options.effort_sign is None:
        shares = [f"{compared.fit(one)[0]:.2g}" for one in (1.0, -1.0)]
        figures = f"it leaves {shares[0]} of them unexplained, of them turned round {shares[1]}"
        if sign != (usual_sign or sign):
            cure = "joint direction: say --effort-sign -1, or in the file 'effort_sign: -1'; 1 takes them as they are"
            found = f"against the joints, as gravity shows ({figures})"
            raise InvalidRecording(path, "the direction of the efforts", found, cure)
        if usual_sign is None and not shown and finding is None:
            cure = "a clear one, or a stated one: --effort-sign 1 (efforts in joint direction) or -1 (against it)"
            raise InvalidRecording(path, "the sign of the efforts", f"not shown by gravity ({figures})", cure)
        if sign < 0.0:
            told = f"efforts are against the joint direction, as gravity shows ({figures}), and were turned round"
            notices = (*notices, told)
    turned = replace(samples, tau=sign * samples.tau)
    return replace(recording, batches=(turned,), notices=notices, caveats=caveats)


def _find_fault(robot: RobotModel, compared: EffortComparison, sign: float) -> tuple[str, str, str] | None:
    """Return the fault of the efforts, found and expected values; None where they may be right."""
    plain = compared.fit(sign)[0]
    if plain <= _GOOD / 2 or not compared.is_moving:
        return None
    needed = min(_UNCLEAR, _CLEARLY * plain)
    if compared.fit(sign, payload=_HEAVIER)[0] < min(needed, _GOOD):  # either may be right
        doubt = "more than a payload of the prior needs: is it heavier (weigh it), or are they in another unit"
        return None if plain <= _GOOD else ("the size of the efforts", doubt, "")
    without = min(compared.fit(sign, 0.0)[0], compared.fit(sign, 0.0, 0.0)[0])
    ends, common = compared.best_scale(sign) if plain > _GOOD else ((1.0, 1.0), plain)
    scale = sign * float(np.sqrt(ends[0] * ends[1]))
    scales, own = compared.best_scales(scale) if plain > _GOOD else (np.full(robot.n, sign), plain)
    # Small currents look like the torques of a light payload alone
    rival = min(common, own) if plain > 1.0 else common
    if without < min(needed, _CLEARLY * rival) or (plain > 1.0 and min(common, own) > _POOR):
        figures = f"{plain:.2g} of them unexplained with the arm's gravity, {without:.2g} without"
        return (
            "gravity in the efforts",
            f"missing: gravity seems to be taken off already (the model leaves {figures})",
            "measured torques, gravity included, for the arm's weight is in the equations: log those before "
            "compensation (not external torques), or add the gravity of your model to them",
        )
    chosen = compared.carrying
    sizes = np.abs(scales[chosen])
    is_common = common < needed
    away = abs(np.log(abs(scale))) if is_common else float(np.abs(np.log(sizes)).max())
    if not (is_common or own < needed) or away < np.log(_AWAY):
        return None
    names = [robot.joint_names[joint] for joint in chosen]
    each = ", ".join(f"{name} {size:.2g}" for name, size in zip(names, sizes, strict=True))
    units = " ".join(f"--effort-scale {name}={1.0 / size:.3g}" for name, size in zip(names, sizes, strict=True))
    shown = [abs(scale)] if is_common else [sizes.min(), sizes.max()]
    kinds = "currents? percent?"
    if is_common:
        units = f"--effort-scale {1.0 / abs(scale):.3g} for all joints, or {units}"
        if 300.0 < abs(scale) < 3000.0:
            kinds, units = "mNm?", "--units 'tau=mNm'"
    return (
        "the size of the efforts",
        f"{' to '.join(format(float(f'{end:.1g}'), 'g') for end in shown)} of what gravity needs ({each}): {kinds}",
        "torques in Nm, for any other size is another payload: say what one unit is in Nm (of a current gear times "
        f"torque constant); gravity suggests {units}, a hint and no measurement",
    )
