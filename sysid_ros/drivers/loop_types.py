"""Inputs and outputs of the control loop: settings and model; mode, faults, status, and one record per cycle."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.core.control.baselines import OnlineModelStatus
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.inertia import PARAMETER_NAMES
from sysid_ros.core.model.robot import RobotModel, parameter_names
from sysid_ros.core.tracking_bound.nominal_payload import choose_payload, nominal_payload_range
from sysid_ros.drivers.arm import Array

LoopMode = IntEnum("LoopMode", "IDLE HOLD TRACK BRAKE FAULT GUIDE", start=0)
"""Mode of the loop; the numbers are as in ``DriverStatus``."""
LoopCode = IntEnum(
    "LoopCode",
    "OK BRAKE_REQUESTED STALE INVALID_MEASUREMENT TRACKING_ERROR MISSED_DEADLINES LIMIT HARDWARE INTERNAL",
    start=0,
)
"""Why the loop left the normal course; the numbers are as in ``DriverStatus``."""
RefusalCode = IntEnum(
    "RefusalCode",
    "NOT_READY MALFORMED NO_CERTIFICATE NOT_AUTHENTIC REPLAYED EXPIRED OUT_OF_RANGE OTHER_ASSUMPTIONS OTHER_START "
    "NOT_PROVEN TOO_LATE INTERNAL",
)
"""Why a plan is not executed; the numbers are as in ``ExecuteTrajectory``, from 1 on."""


class LoopRefusal(SysidError):
    """A request that the loop refuses; the arm goes on as before.

    ``reason`` says which joint, by how much, and a remedy; ``late`` is how late [s], where time is the reason.
    """

    def __init__(self, what: str, reason: str, code: RefusalCode = RefusalCode.NOT_READY, late: float | None = None):
        self.what = what
        self.reason = reason
        self.code = code
        self.late = late
        super().__init__(f"{what} refused: {reason}")


@dataclass(frozen=True)
class Fault:
    """A fault found by a monitor."""

    code: LoopCode
    """The fault, as a number."""
    reason: str
    """The same in a sentence: which joint, by how much."""
    ends_control: bool = False
    """Whether the arm has to be damped and handed back; else it brakes along its path."""
    is_blind: bool = False
    """Whether a measurement is wrong although it looks right (a stuck encoder), so that no velocity may be damped."""


@dataclass(frozen=True)
class Transition:
    """One change of mode: its time [ns], the modes before and after, and the reason as a number and in a sentence."""

    stamp_ns: int
    source: LoopMode
    target: LoopMode
    code: LoopCode
    reason: str


@dataclass
class ModeState:
    """The mode of the loop, why it last left the normal course, and the latest transitions, oldest first."""

    mode: LoopMode = LoopMode.IDLE
    code: LoopCode = LoopCode.OK
    reason: str = "not connected"
    transitions: deque[Transition] = field(default_factory=lambda: deque(maxlen=20))

    def change(self, stamp_ns: int, mode: LoopMode, code: LoopCode, reason: str) -> None:
        """Enter a mode at a time [ns] and record why."""
        self.transitions.append(Transition(stamp_ns, self.mode, mode, code, reason))
        self.mode, self.code, self.reason = mode, code, reason


class LoopSample(NamedTuple):
    """One cycle: its number, time [ns], measurement, desired motion, torques sent (NaN without any) and mode.

    Arrays are (n,), in joint direction: [rad], [rad/s], [rad/s^2], [Nm].
    """

    sequence: int
    stamp_ns: int
    ok: bool
    """Whether the measurement is fresh and plausible, its efforts included, and the arm under torque control and not
    guided; else do not use it."""
    q: Array
    v: Array
    tau: Array
    q_d: Array
    v_d: Array
    a_d: Array
    tau_command: Array
    mode: LoopMode


@dataclass(frozen=True)
class LoopStatus:
    """Status of the loop."""

    mode: LoopMode
    code: LoopCode
    """Why it last left the normal course; ``OK`` again with the next trajectory."""
    reason: str
    """The same in a sentence."""
    stamp_ns: int
    """Time of the last cycle [ns]."""
    cycles: int
    """Cycles since connect."""
    invalid_cycles: int
    """Cycles without a usable measurement."""
    reference: Array
    """Desired position, (n,) [rad]; a new trajectory starts here."""
    tracking_error: Array
    """Desired minus measured position, (n,) [rad]."""
    tracking_error_max: Array
    """Its largest absolute value on the present or last trajectory, (n,) [rad]."""
    tracking_bound: Array
    """Bound the trajectory was certified with, (n,) [rad]; infinite without one."""
    model_box_hash: str
    """Fingerprint of the parameter boxes of the model in use."""
    law: ControlLaw
    """Control law with its settings, as in a tracking bound."""
    transitions: tuple[Transition, ...]
    saturated_cycles: int = 0
    """Cycles in which a torque limit cut the command."""
    missed_deadlines: int = 0
    """Cycles that came too late: by half a period where this computer paces the loop, and commands that left later than
    a period after the state they answer where the controller does."""
    plan_id: str | None = None
    """Plan being followed or braked on; None without one."""
    next_plan_id: str | None = None
    """Plan that waits to take over from it; None without one."""
    progress: float = 0.0
    """Part of it that is done, 0..1."""
    is_taking_over: bool = False
    """Whether torque is still being blended in; trajectories are refused meanwhile."""
    rested: float = 0.0
    """How long the arm has been held undisturbed [s]; a certificate may ask for some time of it."""
    online_model: OnlineModelStatus | None = None
    """Decisions of the gate of the online model; None under other control laws."""
    serial_number: str = ""

    @property
    def is_moving(self) -> bool:
        """Whether the arm follows a trajectory or a person, or brakes."""
        return self.mode in (LoopMode.TRACK, LoopMode.BRAKE, LoopMode.GUIDE)

    @property
    def has_failed(self) -> bool:
        """Whether the last motion did not end as planned, or the arm has a fault."""
        return self.code is not LoopCode.OK


@dataclass(frozen=True)
class LoopSettings(Settings):
    """Settings of the monitors of the loop."""

    heartbeat_timeout: float = setting(0.2, "s", lower=0.02, upper=10.0)
    """Time without a heartbeat of the commanding side after which a moving arm brakes."""
    blend_time: float = setting(0.2, "s", lower=0.02, upper=2.0, library_only=True)
    """Time over which torque is blended in at the start and after a change of the controller's nominal payload, and a
    start position that differs from the reference is reached."""
    invalid_cycles_to_brake: int = setting(3, "-", lower=1, upper=1000, library_only=True)
    """Consecutive cycles without a usable measurement after which the arm brakes."""
    invalid_cycles_to_fault: int = setting(10, "-", lower=1, upper=1000, library_only=True)
    """Consecutive cycles without a usable measurement after which it is a fault."""
    following_error: float = setting(0.1, "rad", lower=0.001, upper=1.0)
    """Tracking error from which on it is a fault."""
    overspeed_factor: float = setting(1.5, "-", lower=1.0, upper=5.0, library_only=True)
    """Speed over its limit from which on it is a fault."""
    stuck_displacement: float = setting(0.01, "rad", lower=1e-4, upper=0.1, library_only=True)
    """Motion of the reference during which an encoder may repeat one value; the tracking bound where that is less, and
    a few encoder steps where the joint surely follows."""
    torque_mismatch_time: float = setting(0.05, "s", lower=0.0, upper=10.0, library_only=True)
    """How long measured and commanded torque may differ by more than the sensor's error, where both are of the motor;
    0 does not compare them."""
    fault_damping: float = setting(0.5, "-", lower=0.0, upper=100.0, library_only=True)
    """Velocity gain after a fault, in fractions of torque limit over speed limit."""
    fault_damping_time: float = setting(0.3, "s", lower=0.0, upper=5.0, library_only=True)
    """How long the arm is damped at most before it is handed to its own controller or brakes."""
    fault_blind_time: float = setting(0.03, "s", lower=0.0, upper=1.0, library_only=True)
    """The same where the measurements cannot be used."""
    late_limit: float = setting(0.1, "s", lower=0.001, upper=10.0)
    """Lateness of a cycle at which a real arm brakes; choose a few periods. The time of a simulated arm waits."""
    allows_guiding: bool = setting(False)
    """Whether a person may lead the arm by its tool. No certificate covers that, and it has not been tried on hardware:
    for simulated and emulated arms, or after an assessment of your own."""
    allows_uncertified: bool = setting(False, library_only=True)
    """Whether a control law without a proven bound may follow uncertified motions. For simulated arms
    alone: the driver of a real arm never sets it."""


@dataclass(frozen=True)
class LoopModel:
    """Parameters of arm and payload."""

    theta: Array
    """Nominal parameters of the arm, (14 n,)."""
    theta_box: Box
    """Box that contains the true ones, (14 n,)."""
    payload: Array
    """Nominal payload about the frame of the last joint, (10,)."""
    payload_box: Box
    """Box that contains the true one, (10,)."""

    @classmethod
    def nominal(cls, robot: RobotModel) -> LoopModel:
        """Return the robot's nominal parameters with its payload prior."""
        assumed = Assumptions.of_payload(robot)
        return cls(robot.theta_nominal, robot.theta_box, assumed.nominal, assumed.boxes[1])

    @classmethod
    def of_payload(cls, robot: RobotModel, box: Box, guess: Array, nominal: Array | None = None) -> LoopModel:
        """Return the robot's nominal parameters with a payload in a box, (10,), most probably ``guess`` (10,).

        ``nominal`` is the nominal payload of the controller, (10,); None for one with a small tracking bound.
        """
        payload = choose_payload(robot, (robot.theta_box, box), guess) if nominal is None else nominal
        return cls(robot.theta_nominal, robot.theta_box, payload, box)

    def torque_offset(self, robot: RobotModel) -> Array:
        """Return the torque offsets beta, (n,) [Nm]."""
        return robot.friction(self.theta)[:, 3]

    def require_fits(self, robot: RobotModel) -> None:
        """Check the numbers.

        Raises:
            LoopRefusal: A length is wrong, or a nominal value is not finite or, of the arm, outside its box; names it.
                The nominal payload may lie outside its box, as the integral state balances its error, but not outside
                the range for all payloads of the robot.
        """
        for values, box, names in self._parts(robot):
            if not np.shape(values) == box.lower.shape == (len(names),):
                raise LoopRefusal("model", f"{len(names)} parameters are needed, {np.size(values)} were given")
            allowed = nominal_payload_range(robot) if values is self.payload else box
            outside = np.flatnonzero(~((allowed.lower <= values) & (values <= allowed.upper)))
            if outside.size:
                i = outside[0]
                why = (
                    f", what the payload prior of {robot.name} and counterweights of its last body may need: the "
                    "controller would push for a load that is not there; give nominal_payload within that, or none"
                ) * (values is self.payload)
                limits = f"[{allowed.lower[i]:.6g}, {allowed.upper[i]:.6g}]"
                raise LoopRefusal("model", f"{names[i]} = {values[i]:.6g} is not in {limits}{why}")

    def require_inside(self, other: LoopModel, robot: RobotModel) -> None:
        """Check that this model is at least as certain as another.

        Raises:
            LoopRefusal: A box is not inside the other model's; names the parameter.
        """
        for (_, box, names), (_, present, _) in zip(self._parts(robot), other._parts(robot), strict=True):
            outside = np.flatnonzero((box.lower < present.lower) | (box.upper > present.upper))
            if outside.size:
                i = outside[0]
                raise LoopRefusal(
                    "model",
                    f"the interval of {names[i]}, [{box.lower[i]:.6g}, {box.upper[i]:.6g}], is not inside the one "
                    f"in use, [{present.lower[i]:.6g}, {present.upper[i]:.6g}]; "
                    "ask for a reset if the payload was changed",
                )

    def _parts(self, robot: RobotModel) -> tuple[tuple[Array, Box, tuple[str, ...]], ...]:
        """Nominal values, box and names of the parameters of arm and payload."""
        return (
            (self.theta, self.theta_box, parameter_names(robot)),
            (self.payload, self.payload_box, tuple(f"payload.{name}" for name in PARAMETER_NAMES)),
        )
