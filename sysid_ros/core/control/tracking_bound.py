"""The tracking bound of the robust controller: per joint, for every parameter in the boxes.

The theorem, its assumptions and its proof are in docs/control.md; what it adds up is in :mod:`tube_analysis`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.control.frozen_loop import BIN, FEEDBACK, POSITION, VELOCITY, BoundNotAvailable
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.motion import Motion, larger_neighbour, sample_motion
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.control.tube_analysis import Loop, Tube, TubeAnalysis
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]

_MARGIN = 0.003
"""By how much a tube is enlarged before it is tried: it must be found to map into itself."""
_LONGEST_STEP = 4.0
"""Longest step of the search, in steps of plain iteration."""
_ROUNDS = 40
_SETTLED = 0.02
"""Share of the bound by which a transient may still exceed it when it counts as over; the bound is enlarged by it."""


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
        claims: What is and what is not proven, in a sentence.
    """

    position: Array
    velocity: Array
    torque: Array
    take_over: Array
    settling_time: float
    inertia_ratios: tuple[float, float]
    shares: dict[str, Array] = field(repr=False)
    claims: str = (
        "Tracking errors are bounded for every arm and payload in the boxes, with friction, sensor errors, delay and "
        "sampling as configured, while no torque saturates; disturbances are evaluated at samples of the motion, with "
        "5 % added for what lies between."
    )

    def __post_init__(self) -> None:
        for array in (self.position, self.velocity, self.torque, self.take_over, *self.shares.values()):
            array.setflags(write=False)


def tracking_bound(
    robot: RobotModel, model: ControlModel, motion: Motion, settings: RobustSettings | None = None
) -> TrackingBound:
    """Computes the bound of the robust controller for a motion that starts from rest.

    The bound holds at all times if it holds inside the tube it describes: the search begins with an empty tube and
    enlarges it until it maps into itself.

    Args:
        robot: The arm.
        model: Nominal parameters in use by the controller, and their boxes.
        motion: Trajectory from rest, or a posture (n,) [rad] that is held.
        settings: Gains and timing of the controller.

    Raises:
        BoundNotAvailable: The uncertainty is too large for these gains or this motion.
        ParameterOutOfRange: The motion does not fit the arm or does not start at rest.
    """
    settings = settings or RobustSettings()
    samples = sample_motion(motion, robot.n, BIN * settings.period)
    analysis = TubeAnalysis(robot, model, samples, settings)
    tube, loop = _find_invariant_tube(analysis)
    return _summarise(analysis, tube, loop)


def _find_invariant_tube(analysis: TubeAnalysis) -> tuple[Tube, Loop]:
    """Enlarges an empty tube until it maps into itself; returns what it maps to.

    Bounds grow faster than the tube they hold for, so secant steps towards the smallest such tube hardly ever lead
    beyond it; where one does, plain steps go on from before.
    """
    tube, found = Tube.empty(analysis.intervals, analysis.robot.n), None
    longest, before = _LONGEST_STEP, None
    for _ in range(_ROUNDS):
        try:
            loop = analysis.close(tube)
            found = analysis.next_tube(tube, loop)
        except BoundNotAvailable:
            if longest == 1.0 or found is None:
                raise
            longest, before, tube = 1.0, None, found.scaled(1.0 + _MARGIN)
            continue
        if tube.contains(found):
            return found, loop
        size, missing = tube.size, found.size - tube.size
        stretch = 1.0
        if before is not None and longest > 1.0:
            slope = (before[1] - missing) / max(size - before[0], 1e-300)
            stretch = max(1.0, 1.0 / max(slope, 1.0 / longest))
        before = (size, missing)
        tube = tube.stepped(found, stretch).scaled(1.0 + _MARGIN)
    raise BoundNotAvailable(
        "the errors feed on themselves: the parameter boxes are too wide, or the motion too fast, for these gains"
    )


def _summarise(analysis: TubeAnalysis, tube: Tube, loop: Loop) -> TrackingBound:
    """The bound over all intervals."""
    position, velocity = (1.0 + _SETTLED) * tube.position.max(axis=0), (1.0 + _SETTLED) * tube.velocity.max(axis=0)
    take_over, settling_time = _take_over(analysis, tube, loop)
    causes = analysis.causes(POSITION, tube, loop)
    return TrackingBound(
        position=position,
        velocity=velocity,
        torque=(1.0 + _SETTLED) * _torque(analysis, tube, loop),
        take_over=take_over,
        settling_time=settling_time,
        inertia_ratios=loop.ratios,
        shares={name: values.max(axis=0) for name, values in causes.items()},
    )


def _take_over(analysis: TubeAnalysis, tube: Tube, loop: Loop) -> tuple[Array, float]:
    """Bound of the position error from the take-over on, (n,) [rad], and the time until its transient is over [s]."""
    kernels, size = loop.kernels, analysis.smooth.size
    norm = np.sqrt(1.0 + loop.shift) * size.norm[0] * loop.lever[0]
    transient = kernels.step.nominal[:, :, None] * size.entries[0] + kernels.step.deviation[:, :, None] * norm
    settled = np.stack([tube.position.max(axis=0), tube.velocity.max(axis=0)])
    over = np.all(transient[:, [POSITION, VELOCITY]] <= _SETTLED * settled, axis=(1, 2))
    last = 0 if over.all() else int(np.flatnonzero(~over)[-1]) + 2
    return tube.position[0] + transient[:, POSITION].max(axis=0), last * kernels.bin


def _torque(analysis: TubeAnalysis, tube: Tube, loop: Loop) -> Array:
    """Bound of what feedback adds to the torque of the true model for the desired motion, (n,) [Nm]."""
    kernels, grown = loop.kernels, 1.0 + loop.shift
    lever = np.sqrt(grown * larger_neighbour(np.diagonal(analysis.inertia, axis1=1, axis2=2)))
    inertia = grown * np.abs(analysis.inertia[1:])
    causes = analysis.causes(FEEDBACK, tube, loop)
    # Through the nominal loop, friction acts on its own joint; but for what the inertia changes while it is remembered.
    nominal = kernels.rough.nominal[:, FEEDBACK]
    friction = (1.0 + nominal.sum()) * loop.friction_torque.max(axis=0)
    changed = (kernels.memory_change + nominal.sum() * loop.shift) * loop.friction.norm.max()
    known = np.einsum("tij,tj->ti", inertia, causes["sensors"] + causes["model"])
    coupled = (causes["coupling"] + causes["errors themselves"]) / loop.lever
    total = known + lever * (coupled + (loop.caused + changed)[:, None])
    return friction + total.max(axis=0) + analysis.torque_gradient @ tube.position.max(axis=0)
