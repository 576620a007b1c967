"""The theorem: the tracking bound of the robust controller, per joint and for every parameter in the boxes.

An invariant tube, which the map of :mod:`tube` takes into itself, contains the errors of every arm in the boxes (step 5
of the proof); the history of a bound carries it over to the next motion (step 7). Assumptions and proof are in
docs/theory/tracking_bound.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core import kernel
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.control.settings import ControlLaw, RobustSettings
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.disturbance import Signal, bound_torques
from sysid_ros.core.tracking_bound.elasticity import CLAIM, link_errors, require_elastic_margin
from sysid_ros.core.tracking_bound.enclosed import EnclosedMap, enclosed_stops
from sysid_ros.core.tracking_bound.motion import Motion, MotionSamples, sample_motion
from sysid_ros.core.tracking_bound.scalar_loop import POSITION, VELOCITY, BoundNotAvailable, horizon
from sysid_ros.core.tracking_bound.stops import PathCells, StopBound, bound_stops, largest_over
from sysid_ros.core.tracking_bound.tube import SETTLED, ErrorBounds, Tube, TubeMap
from sysid_ros.core.trajectories.base import Trajectory

Array = NDArray[np.float64]

_MARGIN = 0.003
"""Relative enlargement of a tube before it is tried, so that it can map into itself."""
_ENLARGED, _ENCLOSED_ROUNDS = 1.03, 6
"""Size of the tube in which terms are bounded, relative to the last one, and the largest number of times."""


_ESTIMATED = (
    "for what the errors cause themselves, terms of the model are estimated there, with an allowance that is measured."
)
_ENCLOSED = "so are the terms of the model with which the errors act on themselves."


@dataclass(frozen=True)
class TrackingHistory:
    """The executed motion up to a takeover and the tube proven for it; see :meth:`TrackingBound.until`.

    Attributes:
        samples: The executed motion within the horizon of the kernels, up to the takeover.
        tube: Bounds of the errors in it.
        nominal: Nominal parameters of the controller, of arm and payload together, (14 n,).
        settings: Gains and timing of the controller.
        is_proven: Whether all of it was proven, and no term of the model estimated.
    """

    samples: MotionSamples = field(repr=False)
    tube: Tube = field(repr=False)
    nominal: Array = field(repr=False)
    settings: RobustSettings
    is_proven: bool = False


@dataclass(frozen=True)
class TubeProof:
    """A tube and the proof of its invariance, the start of the bounds of stops.

    Attributes:
        tube_map: The map that takes it into itself.
        tube: The tube.
        bounds: Its image.
        duration: Duration of the motion: stops may begin from its start to then [s].
    """

    tube_map: TubeMap
    tube: Tube
    bounds: ErrorBounds
    duration: float

    def in_stops(self, brake_time: float) -> StopBound:
        """See :meth:`TrackingBound.in_stops`."""
        if brake_time not in self._stops:
            given = self.tube, self.bounds, self.duration, brake_time
            if isinstance(self.tube_map, EnclosedMap):
                self._stops[brake_time] = enclosed_stops(self.tube_map, *given)
            else:
                self._stops[brake_time] = bound_stops(self._cells, *given)
        return self._stops[brake_time]

    @cached_property
    def _stops(self) -> dict[float, StopBound]:
        return {}

    @cached_property
    def _cells(self) -> PathCells:
        return PathCells(self.tube_map)


@dataclass(frozen=True)
class TrackingBound:
    """Bounds that the tracking errors never exceed.

    Attributes:
        position: Bound of ``|q_d - q|`` once the arm has settled, (n,) [rad].
        velocity: Bound of ``|v_d - v|`` once the arm has settled, (n,) [rad/s].
        torque: Bound of the commanded torque less the torque the true arm needs for the desired motion, (n,) [Nm]: the
            contribution of feedback, sensor noise included.
        take_over: Bound of ``|q_d - q|`` while the start of the motion is held, from the moment the arm is taken over
            there at rest, (n,) [rad].
        settling_time: Time after that until ``position``, ``velocity`` and ``torque`` hold [s].
        inertia_ratios: Smallest and largest ratio of true to nominal inertia in any direction [-].
        shares: Contributions to ``position`` by cause, each (n,) [rad].
        torque_shares: Contributions to ``torque`` where it is largest, by cause, each (n,) [Nm]; see
            :meth:`LoopBounds.torque_by_cause`.
        torques: Bounds of that torque in J intervals from the start of the motion, as long as the intervals of
            ``whole``; the last one with all later ones, (J, n) [Nm].
        whole: Motion and tube, from the history to half a second after the end.
        start: Start of the motion in it [s].
        proof: Start of the bounds of stops; None where it was discarded, see :meth:`without_proof`.
        claims: The proven claim and its assumptions, in a sentence.
    """

    position: Array
    velocity: Array
    torque: Array
    take_over: Array
    settling_time: float
    inertia_ratios: tuple[float, float]
    shares: dict[str, Array] = field(repr=False)
    torque_shares: dict[str, Array] = field(repr=False)
    torques: Array = field(repr=False)
    whole: TrackingHistory = field(repr=False)
    start: float = 0.0
    proof: TubeProof | None = field(default=None, repr=False, compare=False)
    claims: str = (
        "Tracking errors are bounded for every arm and payload in the boxes (a payload whose box lies in the robot's "
        "prior being an object of that prior), with friction, sensor errors, delay and sampling as configured, while "
        "no torque saturates. The model error, friction and the reference are bounded between samples, too; "
        + _ESTIMATED
    )

    def __post_init__(self) -> None:
        for array in (self.position, self.velocity, self.torque, self.take_over, self.torques, *self._shares):
            array.setflags(write=False)

    @property
    def _shares(self) -> tuple[Array, ...]:
        return (*self.shares.values(), *self.torque_shares.values())

    @property
    def is_proven(self) -> bool:
        """Whether all of it is proven, and no term of the model estimated."""
        return self.whole.is_proven

    @property
    def law(self) -> ControlLaw:
        """Control law the bound is for."""
        return self.whole.settings.law

    def torque_over(self, middle: Array, half: Array) -> Array:
        """Return the bounds of the feedback's torque over pieces of the motion, (P, n) [Nm].

        Pieces have their middles (P,) [s] and half lengths (P,) [s].
        """
        times = np.arange(len(self.torques) + 1, dtype=np.float64) * self.whole.samples.step
        return largest_over(times, self.torques, middle, half)

    def in_stops(self, brake_time: float) -> StopBound:
        """Bound the errors in all stops along the path, whenever they begin in the motion.

        ``brake_time`` is the time to rest of the stops [s].

        Raises:
            BoundNotAvailable: No bound was found, or the proof was discarded.
        """
        if self.proof is None:
            raise BoundNotAvailable("the tube that stops start from was discarded")
        return self.proof.in_stops(brake_time)

    def without_proof(self) -> TrackingBound:
        """Return the bound without the proof, which only stops need and which takes memory."""
        return replace(self, proof=None)

    def until(self, time: float) -> TrackingHistory:
        """Return the history for a motion that takes over at a time [s], a multiple of ten sampling periods.

        Raises:
            ParameterOutOfRange: The time is not such a multiple or not within the motion.
        """
        whole, width = self.whole, self.whole.samples.step
        node = round((self.start + time) / width)
        if abs(node * width - self.start - time) > 1e-6 or not 0 < node < len(whole.samples.q) or time < 0.0:
            end = width * (len(whole.samples.q) - 1) - self.start
            raise ParameterOutOfRange("takeover time [s]", time, f"a multiple of {width:g} up to {end:g}")
        samples = whole.samples.last(node, int(np.ceil(horizon(whole.settings) / width)) + 2)
        return replace(whole, samples=samples, tube=whole.tube.between(node - samples.past, node))


def tracking_bound(
    robot: RobotModel,
    model: ControlModel,
    motion: Motion,
    settings: RobustSettings | None = None,
    history: TrackingHistory | None = None,
    encloses_terms: bool = False,
) -> TrackingBound:
    """Compute the bound of the robust controller for a motion.

    The search enlarges an empty tube until the tube map takes it into itself; the bound is the largest value of this
    invariant tube.

    Args:
        robot: The arm.
        model: Nominal parameters of the controller, and boxes that contain the true ones.
        motion: Trajectory, or a posture (n,) [rad] to hold.
        settings: Gains and timing of the controller; the arm's default ones if None.
        history: History of the predecessor, in whose last state the motion starts; without it, the motion starts from
            rest. The controller's nominal parameters must be those of the history: they change at rest only.
        encloses_terms: Whether the slowly varying terms are bounded, not estimated: then all is proven, in seconds. The
            history must be proven, too.

    Raises:
        BoundNotAvailable: The uncertainty is too large for these gains or this motion, or the nominal parameters of the
            controller are not those of the history.
        ParameterOutOfRange: The arm has more than 8 joints; the motion does not fit it, or does not start at rest or
            where the history ends; or the history is not proven where the bound is to be.
    """
    if robot.n > kernel.MOST_JOINTS:
        raise ParameterOutOfRange(
            "number of joints that the controller moves", robot.n, f"at most {kernel.MOST_JOINTS}"
        )
    settings = settings or default_gains(robot)
    past = past_tube = None
    if history is not None:
        if history.settings != settings:
            raise ParameterOutOfRange("controller of the history", history.settings, "the same as now")
        if not np.array_equal(history.nominal, model.total):
            raise BoundNotAvailable(
                "the motion takes over from one with other nominal parameters of the controller, which change at rest "
                "only: keep its nominal payload, or start from rest"
            )
        if encloses_terms and not history.is_proven:
            raise ParameterOutOfRange("terms of the model in the history", "estimated", "proven, as now")
        past, past_tube = history.samples, history.tube
    samples = sample_motion(motion, robot.n, settings, past)
    require_elastic_margin(robot, model, settings, samples.q[samples.past :])
    tube_map = TubeMap(robot, model, samples, settings, past_tube)
    tube, bounds = _find_invariant_tube(tube_map)
    if encloses_terms:
        tube_map, tube, bounds = _enclose(tube_map, tube)
    return _summarise(tube_map, tube, bounds, motion.duration if isinstance(motion, Trajectory) else 0.0)


def _enclose(tube_map: TubeMap, tube: Tube) -> tuple[TubeMap, Tube, ErrorBounds]:
    """Find an invariant tube again, with terms that are bounded in a slightly larger one."""
    for _ in range(_ENCLOSED_ROUNDS):
        errors = _ENLARGED * tube.position
        tube_map = EnclosedMap(tube_map, errors)
        tube, bounds = _find_invariant_tube(tube_map)
        if np.all(tube.position <= errors):
            return tube_map, tube, bounds
    raise BoundNotAvailable("the tube grows as long as terms are bounded in a larger one")


def _find_invariant_tube(tube_map: TubeMap) -> tuple[Tube, ErrorBounds]:
    """Enlarge an empty tube until it is invariant, and return its image.

    Except for friction, which jumps where errors reach the desired speed, the map is convex in the size of the tube, so
    secant steps towards the smallest invariant tube seldom overshoot it. Plain iteration continues from a tube that is
    on average larger than its image, and makes it smaller; from the last one before if a tube has no image.
    """
    tube, found = tube_map.empty_tube(), None
    longest, before = 4.0, None  # steps of plain iteration
    for _ in range(150):  # friction that is no longer compensated may take many, one interval after the other
        try:
            bounds = tube_map.evaluate(tube)
            # The rest of the transient after the arm was taken over adds to the errors.
            found = tube_map.image(tube, bounds).scaled(1.0 + SETTLED).after(tube_map.past_tube)
        except BoundNotAvailable:
            if longest == 1.0 or found is None:
                raise
            longest, before = 1.0, None
            tube = found.scaled(1.0 + _MARGIN).after(tube_map.past_tube)
            continue
        if tube.contains(found):
            return found, bounds
        size, missing = tube.size, found.size - tube.size
        if missing <= 0.0:
            longest = 1.0
        image = found.scaled(1.0 + _MARGIN)
        if longest > 1.0:
            stretch = 1.0
            if before is not None:
                slope = (before[1] - missing) / max(size - before[0], 1e-300)
                stretch = max(1.0, 1.0 / max(slope, 1.0 / longest))
            image = tube.stepped(image, stretch)
        before, tube = (size, missing), image.after(tube_map.past_tube)
    raise BoundNotAvailable(
        "no tube maps into itself: the parameter boxes are too wide, or the motion too fast, for these gains"
    )


def _summarise(tube_map: TubeMap, tube: Tube, bounds: ErrorBounds, duration: float) -> TrackingBound:
    samples, settings = tube_map.samples, tube_map.settings
    now = slice(samples.past, None)
    take_over, settling_time = _take_over(tube_map, tube, bounds)
    off, off_rate = link_errors(tube_map.robot)
    parts = {name: values[now] for name, values in tube_map.torque_by_cause(tube, bounds).items()}
    torques: Array = (1.0 + SETTLED) * sum(parts.values(), np.zeros(1))
    largest = torques.argmax(axis=0), np.arange(torques.shape[1])
    torque = torques[largest]
    intervals = max(int(np.ceil(duration / samples.step - 1e-9)), 1)
    claims, is_proven = TrackingBound.claims, isinstance(tube_map, EnclosedMap)
    if is_proven:
        claims = claims.replace(_ESTIMATED, _ENCLOSED)
    torques[intervals - 1] = torques[intervals - 1 :].max(axis=0)
    return TrackingBound(
        position=tube.position[now].max(axis=0) + off,
        velocity=tube.velocity[now].max(axis=0) + off_rate,
        torque=torque,
        take_over=take_over + off,
        settling_time=settling_time,
        inertia_ratios=bounds.inputs.ratios,
        shares={name: values[now, :, POSITION].max(axis=0) for name, values in bounds.causes.items()},
        torque_shares={name: (1.0 + SETTLED) * values[largest] for name, values in parts.items()},
        torques=torques[:intervals].copy(),
        whole=TrackingHistory(samples, tube, tube_map.model.total, settings, is_proven),
        start=samples.past * samples.step,
        proof=TubeProof(tube_map, tube, bounds, duration),
        claims=claims + (CLAIM if tube_map.robot.elasticity is not None else ""),
    )


def _take_over(tube_map: TubeMap, tube: Tube, bounds: ErrorBounds) -> tuple[Array, float]:
    """Bound the position error after the arm was taken over, (n,) [rad], and the time until it has settled [s].

    The controller begins with the torque measured to balance the arm, or without one: the initial step is the error of
    that torque, or the whole model error.
    """
    inputs, model_error, balance = bounds.inputs, tube_map.smooth.size, _balance_error(tube_map)
    step = inputs.kernels.step
    now = tube_map.samples.past
    norm = inputs.growth * max(model_error.norm[0], balance.norm[0])
    coupled = step.deviation[:, None] * inputs.joint_per_norm[0][:, None] * norm
    entries = step.center[:, None] * np.maximum(model_error.entries[0], balance.entries[0])[:, None] + coupled
    joints = np.stack([tube.position[now:].max(axis=0), tube.velocity[now:].max(axis=0)], axis=-1)
    norms = np.stack([tube.position_norm[now:].max(), tube.velocity_norm[now:].max()])
    is_settled = np.all(entries[..., [POSITION, VELOCITY]] <= SETTLED * joints, axis=(1, 2))
    is_settled &= np.all(step.largest[:, [POSITION, VELOCITY]] * norm <= SETTLED * norms, axis=1)
    last = 0 if is_settled.all() else int(np.flatnonzero(~is_settled)[-1]) + 2
    return tube.position[now] + entries[..., POSITION].max(axis=0), last * inputs.kernels.bin


def _balance_error(tube_map: TubeMap) -> Signal:
    """Bound ``M^-1 h``, h the error of a measured torque that should balance the arm: sensor and friction."""
    robot, model, rest = tube_map.robot, tube_map.model, np.zeros_like(tube_map.samples.q[:1])
    rows = tube_map.regressor.evaluate(tube_map.samples.q[:1], rest, rest, direction=rest)[0]
    arm, payload = model.theta_box, model.payload_box
    center, radius = add_payload(arm.center, payload.center), add_payload(arm.radius, payload.radius)
    coulomb = robot.friction(arm.upper)[:, 0]
    sensors, effort = robot.sensors, np.abs(rows @ center) + np.abs(rows) @ radius + coulomb
    error = sensors.effort_relative_error * effort + sensors.effort_absolute_error + coulomb
    return bound_torques(tube_map.inverse[:1], error[None])
