"""What the control loop says: its mode, why it is in it, one record per cycle, and how it is set up."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from sysid_ros.core.common.errors import SysidError, require_ranges
from sysid_ros.drivers.arm import Array


class LoopMode(IntEnum):
    """What the loop does with the arm; the numbers are those of ``DriverStatus``."""

    IDLE = 0
    HOLD = 1
    TRACK = 2
    BRAKE = 3
    FAULT = 4


class LoopCode(IntEnum):
    """Why the loop left the normal course; the numbers are those of ``DriverStatus``."""

    OK = 0
    BRAKE_REQUESTED = 1
    STALE = 2
    INVALID_MEASUREMENT = 3
    TRACKING_ERROR = 4
    MISSED_DEADLINES = 5
    LIMIT = 6
    HARDWARE = 7
    INTERNAL = 8


class LoopRefusal(SysidError):
    """Something asked of the loop that it does not do; the arm goes on as before.

    Args:
        what: What was asked.
        reason: Why not: which joint, by how much, what to do.
    """

    def __init__(self, what: str, reason: str):
        self.what = what
        self.reason = reason
        super().__init__(f"{what} refused: {reason}")


@dataclass(frozen=True)
class Transition:
    """One change of mode.

    Attributes:
        stamp_ns: When [ns].
        source: Mode before.
        target: Mode after.
        code: Why, as a number.
        reason: Why, in a sentence.
    """

    stamp_ns: int
    source: LoopMode
    target: LoopMode
    code: LoopCode
    reason: str


class LoopSample(NamedTuple):
    """One cycle. Arrays are (n,).

    Attributes:
        sequence: Number of the cycle.
        stamp_ns: When the state was measured [ns].
        ok: Whether the measurement is fresh and plausible, its efforts included, and the arm under torque control; else
            do not use it.
        q: Measured positions [rad].
        v: Measured velocities [rad/s].
        tau: Measured efforts in joint direction [Nm].
        q_d: Desired positions [rad].
        v_d: Desired velocities [rad/s].
        a_d: Desired accelerations [rad/s^2].
        tau_command: Torques sent [Nm]; not a number where none were.
        mode: Mode of the loop.
    """

    sequence: int
    stamp_ns: int
    ok: bool
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
    """A look at the loop.

    Attributes:
        mode: What it does.
        code: Why it last left the normal course; ``OK`` again with the next trajectory.
        reason: The same in a sentence.
        stamp_ns: Time of the last cycle [ns].
        cycles: Cycles since connect.
        invalid_cycles: Cycles without a usable measurement.
        saturated_cycles: Cycles in which a torque limit cut the command.
        missed_deadlines: Cycles that came too late: by half a period where this computer paces the loop, and commands
            that left later than a period after the state they answer where the controller does.
        reference: Desired position, (n,) [rad]; a new trajectory starts here.
        plan_hash: Trajectory being followed or braked on, else empty.
        next_plan_hash: Trajectory that waits to take over from it, else empty.
        progress: Part of it that is done, 0..1.
        tracking_error: Desired minus measured position, (n,) [rad].
        tracking_error_max: Its largest absolute value on the present or last trajectory, (n,) [rad].
        tracking_bound: Bound the trajectory was certified with, (n,) [rad]; infinite without one.
        is_taking_over: Whether torque is still being blended in; trajectories are refused meanwhile.
        rested: How long the arm has been held undisturbed [s]; a certificate may ask for some time of it.
        model_box_hash: Fingerprint of the parameter boxes of the model in use.
        law: Control law with its settings, in words; what a tracking bound has to be about.
        transitions: The latest changes of mode, oldest first.
    """

    mode: LoopMode
    code: LoopCode
    reason: str
    stamp_ns: int
    cycles: int
    invalid_cycles: int
    saturated_cycles: int
    missed_deadlines: int
    reference: Array
    plan_hash: str
    next_plan_hash: str
    progress: float
    tracking_error: Array
    tracking_error_max: Array
    tracking_bound: Array
    is_taking_over: bool
    rested: float
    model_box_hash: str
    law: str
    transitions: tuple[Transition, ...]

    @property
    def is_moving(self) -> bool:
        """Whether a trajectory or a brake is being executed."""
        return self.mode in (LoopMode.TRACK, LoopMode.BRAKE)

    @property
    def has_failed(self) -> bool:
        """Whether the last motion did not end as planned, or the arm has a fault."""
        return self.code is not LoopCode.OK


_RANGES = {
    "heartbeat_timeout": (0.01, 10.0),
    "brake_time": (0.05, 5.0),
    "blend_time": (0.02, 2.0),
    "start_tolerance": (0.0, 0.1),
    "invalid_cycles_to_brake": (1, 1000),
    "invalid_cycles_to_fault": (1, 1000),
    "following_error": (0.001, 1.0),
    "overspeed_factor": (1.0, 5.0),
    "stuck_displacement": (1e-4, 0.1),
    "torque_mismatch_time": (0.0, 10.0),
    "fault_damping_time": (0.0, 5.0),
    "fault_blind_time": (0.0, 1.0),
    "fault_damping": (0.0, 100.0),
    "late_limit": (0.001, 10.0),
}


@dataclass(frozen=True)
class LoopSettings:
    """How the loop guards the arm.

    Attributes:
        heartbeat_timeout: Longest silence of the commanding side while the arm moves [s].
        brake_time: Time to rest of a brake where the certificate names none [s].
        blend_time: Time over which torque is blended in at the start and after a change of the payload that the
            controller takes for true, and a start position that differs from the reference is reached [s].
        start_tolerance: Largest difference between the reference and the start of a trajectory [rad].
        invalid_cycles_to_brake: Consecutive cycles without a usable measurement after which the arm brakes.
        invalid_cycles_to_fault: ... after which the loop gives the arm up.
        following_error: Tracking error at which the loop gives the arm up [rad].
        overspeed_factor: Speed over its limit at which the loop gives the arm up [-].
        stuck_displacement: Motion of the reference during which an encoder may repeat one value [rad]; the
            tracking bound where that is less, and a few encoder steps where the joint surely follows.
        torque_mismatch_time: How long measured and commanded torque may differ by more than the sensor's error, where
            both are of the motor [s]; 0 does not compare them.
        fault_damping: Velocity gain while the arm is given up, in fractions of torque limit over speed limit [-].
        fault_damping_time: How long the arm is damped at most before it is handed to its own controller or brakes [s].
        fault_blind_time: The same where the measurements cannot be used [s].
        late_limit: Lateness of a cycle in real time at which the arm brakes [s]; a simulated arm waits meanwhile, for
            hardware choose a few periods.
    """

    heartbeat_timeout: float = 0.2
    brake_time: float = 0.3
    blend_time: float = 0.2
    start_tolerance: float = 0.002
    invalid_cycles_to_brake: int = 3
    invalid_cycles_to_fault: int = 10
    following_error: float = 0.1
    overspeed_factor: float = 1.5
    stuck_displacement: float = 0.01
    torque_mismatch_time: float = 0.05
    fault_damping: float = 0.5
    fault_damping_time: float = 0.3
    fault_blind_time: float = 0.03
    late_limit: float = 0.1

    def __post_init__(self) -> None:
        require_ranges(self, _RANGES)
