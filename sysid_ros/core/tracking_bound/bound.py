"""The tracking bound of the robust controller: per joint, for every parameter in the boxes.

The theorem, its assumptions and its proof are in docs/control.md; what it adds up is in :mod:`tube_analysis`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.loop_response import BIN, POSITION, VELOCITY, BoundNotAvailable, memory
from sysid_ros.core.tracking_bound.motion import Motion, MotionSamples, sample_motion
from sysid_ros.core.tracking_bound.tube import Loop, Tube, TubeAnalysis
from sysid_ros.core.trajectories.base import fingerprint

Array = NDArray[np.float64]

_MARGIN = 0.003
"""By how much a tube is enlarged before it is tried: it must be found to map into itself."""
_LONGEST_STEP = 4.0
"""Longest step of the search, in steps of plain iteration."""
_ROUNDS = 40
_SETTLED = 0.02
"""Share of the bound by which a transient may still exceed it when it counts as over; the bound is enlarged by it."""


@dataclass(frozen=True)
class TrackingHistory:
    """What has been executed so far, and the errors proven for it; see :meth:`TrackingBound.until`.

    Attributes:
        samples: The last part of what was executed, up to the moment at which it is left.
        tube: Bounds of the errors in it.
        theta: Nominal parameters of the arm the controller used, (14 n,).
        settings: Gains and timing of the controller.
    """

    samples: MotionSamples = field(repr=False)
    tube: Tube = field(repr=False)
    theta: Array = field(repr=False)
    settings: RobustSettings


@dataclass(frozen=True)
class TrackingBound:
    """What the tracking errors never exceed.

    Attributes:
        position: Bound of ``|q_d - q|`` once the arm has settled, (n,) [rad].
        velocity: Bound of ``|v_d - v|`` once the arm has settled, (n,) [rad/s].
        torque: Bound of the difference between the commanded torque and what the true model needs for the desired
            motion, (n,) [Nm]: what feedback adds, chatter from the sensors included.
        take_over: Bound of ``|q_d - q|`` while the start of the motion is held, from the moment the arm is taken over
            there at rest on, (n,) [rad].
        settling_time: Time after that until ``position``, ``velocity`` and ``torque`` hold [s].
        inertia_ratios: Smallest and largest ratio of true to nominal inertia in any direction [-].
        shares: What contributes to ``position``, by name, each (n,) [rad].
        whole: What was looked at, motion and errors, from the history to half a second after the end.
        start: When the motion starts in it [s].
        claims: What is and what is not proven, in a sentence.
    """

    position: Array
    velocity: Array
    torque: Array
    take_over: Array
    settling_time: float
    inertia_ratios: tuple[float, float]
    shares: dict[str, Array] = field(repr=False)
    whole: TrackingHistory = field(repr=False)
    start: float = 0.0
    claims: str = (
        "Tracking errors are bounded for every arm and payload in the boxes (a payload whose box lies in the robot's "
        "prior being an object of that prior), with friction, sensor errors, delay and sampling as configured, while "
        "no torque saturates; disturbances are evaluated at samples of the motion, with 5 % added for what lies "
        "between."
    )

    def __post_init__(self) -> None:
        for array in (self.position, self.velocity, self.torque, self.take_over, *self.shares.values()):
            array.setflags(write=False)

    def digest(self) -> str:
        """Fingerprint of all that it says of its motion, and of what it leaves to the next, as 64 hex digits."""
        samples, tube = self.whole.samples, self.whole.tube
        times = [self.settling_time, self.start, samples.blend_left]
        errors = (self.position, self.velocity, self.torque, self.take_over, *vars(tube).values())
        return fingerprint(f"bound:{self.law}", times, self.whole.theta, samples.payload, samples.goal, *errors)

    @property
    def law(self) -> str:
        """The control law the bound is for, in words."""
        return self.whole.settings.law

    def until(self, time: float) -> TrackingHistory:
        """The history of a motion that takes over from this one.

        Args:
            time: When this motion is left [s], a multiple of ten sampling periods.

        Raises:
            ParameterOutOfRange: The time is not such a multiple or not within the motion.
        """
        whole, width = self.whole, self.whole.samples.step
        node = round((self.start + time) / width)
        if abs(node * width - self.start - time) > 1e-6 or not 0 < node < len(whole.samples.q) or time < 0.0:
            end = width * (len(whole.samples.q) - 1) - self.start
            raise ParameterOutOfRange("time a motion is left at [s]", time, f"a multiple of {width:g} up to {end:g}")
        remembered = int(np.ceil(memory(whole.settings) / width)) + 2
        samples = whole.samples.last(node, remembered)
        return TrackingHistory(samples, whole.tube.between(node - samples.past, node), whole.theta, whole.settings)


def tracking_bound(
    robot: RobotModel,
    model: ControlModel,
    motion: Motion,
    settings: RobustSettings | None = None,
    history: TrackingHistory | None = None,
) -> TrackingBound:
    """Computes the bound of the robust controller for a motion.

    The bound holds at all times if it holds inside the tube it describes: the search begins with an empty tube and
    enlarges it until it maps into itself.

    Args:
        robot: The arm.
        model: Nominal parameters of the controller, and boxes that contain the true ones.
        motion: Trajectory, or a posture (n,) [rad] that is held.
        settings: Gains and timing of the controller.
        history: What was executed before, in whose last state the motion starts; without it, the motion starts from
            rest. If the nominal payload of ``model`` is another one than before, the controller gets it as the motion
            starts.

    Raises:
        BoundNotAvailable: The uncertainty is too large for these gains or this motion.
        ParameterOutOfRange: The motion does not fit the arm, or does not start at rest or where the history ends.
    """
    settings = settings or RobustSettings()
    past = known = None
    if history is not None:
        if history.settings != settings or not np.array_equal(history.theta, model.theta):
            raise ParameterOutOfRange("controller of the history", history.settings, "the same as now")
        past, known = history.samples, history.tube
    samples = sample_motion(motion, robot.n, BIN * settings.period, model.payload, past, settings.blend_time)
    analysis = TubeAnalysis(robot, model, samples, settings, known)
    tube, loop = _find_invariant_tube(analysis)
    return _summarise(analysis, tube, loop)


def bound_motion(
    robot: RobotModel,
    boxes: tuple[Box, Box] | None,
    payload_nominal: ArrayLike | None,
    motion: Motion,
    history: TrackingHistory | None = None,
    settings: RobustSettings | None = None,
) -> TrackingBound:
    """The bound for boxes of arm and payload; see :func:`tracking_bound` and :meth:`ControlModel.of_boxes`.

    Args:
        robot: The arm.
        boxes: Boxes of the parameters of arm (14 n,) and payload (10,); the robot's own if None.
        payload_nominal: Nominal payload of the controller, (10,); see :func:`choose_payload`.
        motion: Trajectory, or a posture (n,) [rad] that is held.
        history: What was executed before.
        settings: Gains and timing of the controller.

    Raises:
        BoundNotAvailable: The uncertainty is too large for these gains or this motion.
        ParameterOutOfRange: Something does not fit.
    """
    return tracking_bound(robot, ControlModel.of_boxes(robot, boxes, payload_nominal), motion, settings, history)


def _find_invariant_tube(analysis: TubeAnalysis) -> tuple[Tube, Loop]:
    """Enlarges an empty tube until it maps into itself; returns what it maps to.

    Bounds grow faster than the tube they hold for, so secant steps towards the smallest such tube hardly ever lead
    beyond it; where one does, plain steps go on from before.
    """
    tube, found = analysis.empty_tube(), None
    longest, before = _LONGEST_STEP, None
    for _ in range(_ROUNDS):
        try:
            loop = analysis.close(tube)
            # What is left of the take-over adds to the errors.
            found = analysis.next_tube(tube, loop).scaled(1.0 + _SETTLED).after(analysis.known)
        except BoundNotAvailable:
            if longest == 1.0 or found is None:
                raise
            longest, before = 1.0, None
            tube = found.scaled(1.0 + _MARGIN).after(analysis.known)
            continue
        if tube.contains(found):
            return found, loop
        size, missing = tube.size, found.size - tube.size
        stretch = 1.0
        if before is not None and longest > 1.0:
            slope = (before[1] - missing) / max(size - before[0], 1e-300)
            stretch = max(1.0, 1.0 / max(slope, 1.0 / longest))
        before = (size, missing)
        tube = tube.stepped(found.scaled(1.0 + _MARGIN), stretch).after(analysis.known)
    raise BoundNotAvailable(
        "the errors feed on themselves: the parameter boxes are too wide, or the motion too fast, for these gains"
    )


def _summarise(analysis: TubeAnalysis, tube: Tube, loop: Loop) -> TrackingBound:
    """The bound over all intervals of the motion itself."""
    samples, settings = analysis.samples, analysis.settings
    now = slice(samples.past, None)
    take_over, settling_time = _take_over(analysis, tube, loop)
    return TrackingBound(
        position=tube.position[now].max(axis=0),
        velocity=tube.velocity[now].max(axis=0),
        torque=(1.0 + _SETTLED) * analysis.bound_torque(tube, loop)[now].max(axis=0),
        take_over=take_over,
        settling_time=settling_time,
        inertia_ratios=loop.ratios,
        shares={name: values[now, :, POSITION].max(axis=0) for name, values in loop.causes.items()},
        whole=TrackingHistory(samples, tube, analysis.model.theta, settings),
        start=samples.past * samples.step,
    )


def _take_over(analysis: TubeAnalysis, tube: Tube, loop: Loop) -> tuple[Array, float]:
    """Bound of the position error from the take-over on, (n,) [rad], and the time until its transient is over [s]."""
    step, size = loop.kernels.step, analysis.smooth.size
    now = analysis.samples.past
    norm = np.sqrt(1.0 + loop.shift) * size.norm[0]
    entries = step.center[:, None] * size.entries[0][:, None] + step.deviation[:, None] * loop.lever[0][:, None] * norm
    joints = np.stack([tube.position[now:].max(axis=0), tube.velocity[now:].max(axis=0)], axis=-1)
    norms = np.stack([tube.position_norm[now:].max(), tube.velocity_norm[now:].max()])
    over = np.all(entries[..., [POSITION, VELOCITY]] <= _SETTLED * joints, axis=(1, 2))
    over &= np.all(step.largest[:, [POSITION, VELOCITY]] * norm <= _SETTLED * norms, axis=1)
    last = 0 if over.all() else int(np.flatnonzero(~over)[-1]) + 2
    return tube.position[now] + entries[..., POSITION].max(axis=0), last * loop.kernels.bin
