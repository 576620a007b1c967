"""The state of a control loop, by theme: mode, measurement, motion, model in use, monitors and counters."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.control.guiding import HandGuide
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.loop_types import Fault, LoopCode, LoopMode, LoopModel, LoopSettings, Transition
from sysid_ros.drivers.monitors import FaultStop, MeasurementCheck, MotionGuard, TorqueCheck

_KEPT_TRANSITIONS = 20
_BRAKE_TIME = 0.3
"""Of a motion without a certificate [s]."""


@dataclass
class ModeState:
    """The mode of the loop, and the reason for it.

    Attributes:
        mode: The mode.
        code: Why it last left the normal course.
        reason: The same in a sentence.
        transitions: The latest changes, oldest first.
    """

    mode: LoopMode = LoopMode.IDLE
    code: LoopCode = LoopCode.OK
    reason: str = "not connected"
    transitions: deque[Transition] = field(default_factory=lambda: deque(maxlen=_KEPT_TRANSITIONS))

    def change(self, stamp_ns: int, mode: LoopMode, code: LoopCode, reason: str) -> None:
        """Enter a mode at a time [ns] and record why."""
        self.transitions.append(Transition(stamp_ns, self.mode, mode, code, reason))
        self.mode, self.code, self.reason = mode, code, reason


@dataclass
class Measurement:
    """The state of the arm in this cycle.

    Attributes:
        q: Last measured positions, (n,) [rad]; extrapolated in a few cycles without a usable measurement.
        v: Last measured velocities, (n,) [rad/s].
        stamp_ns: Time of the measurement [ns].
        effort_fault: Why its efforts are invalid; None if they are valid.
    """

    q: Array
    v: Array
    stamp_ns: int
    effort_fault: Fault | None = None


@dataclass(frozen=True)
class Segment:
    """A trajectory that may be followed.

    Attributes:
        trajectory: The motion.
        certificate: Its certificate; None without one, as with a simulated arm under a control law without a proven
            bound.
        model: Model the controller uses from its beginning on; None keeps the one in use.
    """

    trajectory: Trajectory
    certificate: Certificate | None
    model: LoopModel | None = None

    @property
    def plan_id(self) -> str | None:
        """Its plan; None without a certificate."""
        return None if self.certificate is None else self.certificate.plan_id

    @property
    def bounds(self) -> tuple[Array, Array]:
        """Bounds of position [rad] and velocity errors [rad/s], (n,) each; infinite without a certificate."""
        if self.certificate is None:
            nothing = np.full(self.trajectory.n, np.inf)
            return nothing, nothing
        return self.certificate.tracking_bound, self.certificate.velocity_bound

    @property
    def brake_time(self) -> float:
        """Time in which it may be braked [s]."""
        return _BRAKE_TIME if self.certificate is None else self.certificate.brake_time


class MotionState:
    """The present motion and the next one, of n joints.

    Attributes:
        present: Segment being followed or braked on, or the last one before the arm was lost; None at rest.
        next: Segment that waits to take over from it.
        error_max: Largest absolute tracking error of the present or last trajectory, (n,) [rad].
        guide: Guiding in place of a trajectory while a person leads the arm, until it rests again.
        may_stay: Whether the arm rests at the end of a certified plan with its model, where it may be held for ever: a
            single torque beyond the continuous limit proves nothing then.
    """

    def __init__(self, n: int):
        self.present: Segment | None = None
        self.next: Segment | None = None
        self.error_max = np.zeros(n)
        self.guide: HandGuide | None = None
        self.may_stay = False

    @property
    def plan_id(self) -> str | None:
        """Plan of the present segment."""
        return None if self.present is None else self.present.plan_id

    @property
    def next_plan_id(self) -> str | None:
        """Plan of the segment that waits."""
        return None if self.next is None else self.next.plan_id

    def copy_bound(self) -> Array:
        """Return the certified tracking bound, (n,) [rad]; infinite at rest."""
        if self.present is None:
            return np.full_like(self.error_max, np.inf)
        return self.present.bounds[0].copy()


class ModelInUse:
    """The model of the controller, and derived data of the loop, such as the hash of its parameter boxes."""

    def __init__(self, robot: RobotModel, model: LoopModel):
        self.model = model
        self.box_hash = box_hash(model.theta_box, model.payload_box)
        self._dynamics = ArmDynamics(robot, model.theta, model.payload)
        self._offset = model.torque_offset(robot)

    def balance(self, q: Array) -> Array:
        """Return the torque that holds the arm at rest at ``q`` (n,) [rad]: gravity and torque offsets, (n,) [Nm]."""
        return self._dynamics.gravity(q) + self._offset


class Monitors:
    """All monitors of a loop.

    Args:
        robot: Limits, sensors and names.
        settings: Thresholds.
        period: Duration of a cycle [s].

    Attributes:
        measurement: Checks positions and velocities.
        torque: Compares measured and commanded torques.
        motion: Compares measured and desired motion.
        stop: Brings the arm to rest after a fault.
    """

    def __init__(self, robot: RobotModel, settings: LoopSettings, period: float):
        self.measurement = MeasurementCheck(robot, settings, period)
        self.torque = TorqueCheck(robot, settings.torque_mismatch_time, period)
        self.motion = MotionGuard(robot, settings)
        self.stop = FaultStop(robot, settings, period)


@dataclass
class Counters:
    """Cycles since the loop was made.

    Attributes:
        cycles: All of them, including missed ones.
        invalid: Without a usable measurement.
        invalid_in_a_row: The latest of them.
        missed_deadlines: Begun too late.
    """

    cycles: int = 0
    invalid: int = 0
    invalid_in_a_row: int = 0
    missed_deadlines: int = 0
