"""The cyclic messages: torques to the actuators, and their measurements; SI units on this side, degrees on the wire.

Data from the network are not trusted: anything but exactly one finite value per joint is a :class:`InvalidFrame`, and
no other exception leaves the decoders.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.kinova_kortex.enums import ACTUATORS, ArmState, CommandFlag
from sysid_ros.drivers.kinova_kortex.frame import message_class, parse
from sysid_ros.drivers.network import InvalidFrame

_LARGEST_ANGLE = 720.0
"""Positions beyond this are no measurement [deg]."""
_LARGEST_VALUE = 1e4
"""Speeds [deg/s] and torques [Nm] beyond this are no measurement."""
_LONGEST_SERIAL = 64
_LARGEST_DEVICE = 0xFF
"""A frame has 8 bits for the device it is for."""


class Command(NamedTuple):
    """One cyclic command: torques in joint direction [Nm] and flags of every actuator. Arrays are (n,)."""

    frame: int
    """Frame id, modulo 65536; also the command id of every actuator."""
    q: Array
    """Commanded positions, from 0 to 360 on the wire [deg]."""
    tau: Array
    flags: int = CommandFlag.SERVO_ENABLE


class Feedback(NamedTuple):
    """One measurement of the arm, as the base sends it, with velocities in deg/s. Arrays are (n,)."""

    frame: int
    state: ArmState
    q: Array
    """Positions from 0 to 360 [deg]."""
    v: Array
    tau: Array
    """Torques with the vendor's sign [Nm]."""
    commands: tuple[int, ...] = ()
    """Command ids the actuators have received last, (n,)."""
    faults: tuple[int, ...] = ()
    """Bank A of the faults of every actuator, (n,)."""
    warnings: tuple[int, ...] = ()
    """The same of the warnings, (n,)."""
    base_faults: int = 0
    """Bank A of the faults of the base."""
    status: tuple[int, ...] = ()


def encode_command(command: Command) -> bytes:
    """Return the bytes of a command."""
    message = message_class("Command")(frame_id=command.frame)
    add, flags = message.actuators.add, int(command.flags)
    for q, tau in zip(command.q.tolist(), command.tau.tolist(), strict=True):
        add(command_id=command.frame, flags=flags, position=q, torque_joint=tau)
    return message.SerializeToString()


def decode_command(data: bytes, n: int) -> Command:
    """Decode a command for ``n`` actuators.

    Raises:
        InvalidFrame: It is invalid, for another arm, or its ids differ.
    """
    message = parse("Command", data)
    actuators, size = message.actuators, len(data)
    if len(actuators) != n:
        raise InvalidFrame(f"commands for {len(actuators)} actuators, not {n}", size)
    frame, flags = message.frame_id, actuators[0].flags
    if frame > 0xFFFF or any(one.command_id != frame for one in actuators):
        raise InvalidFrame("command ids that are not the frame id", size)
    if any(one.flags != flags for one in actuators):
        raise InvalidFrame("actuators with different flags", size)
    q = _finite([one.position for one in actuators], _LARGEST_ANGLE, "position", size)
    tau = _finite([one.torque_joint for one in actuators], _LARGEST_VALUE, "torque", size)
    return Command(frame, q, tau, flags)


def encode_feedback(feedback: Feedback) -> bytes:
    """Return the bytes of a feedback."""
    message = message_class("Feedback")(frame_id=feedback.frame)
    message.base.active_state, message.base.fault_bank_a = int(feedback.state), feedback.base_faults
    for k, (q, v, tau) in enumerate(zip(feedback.q, feedback.v, feedback.tau, strict=True)):
        message.actuators.add(
            command_id=feedback.commands[k], status_flags=feedback.status[k], position=q, velocity=v, torque=tau,
            fault_bank_a=feedback.faults[k], warning_bank_a=feedback.warnings[k],
        )  # fmt: skip
    return message.SerializeToString()


def decode_feedback(data: bytes, n: int) -> Feedback:
    """Decode a feedback of an arm with ``n`` actuators; 0 takes any number.

    Raises:
        InvalidFrame: It is invalid, of another arm, or a value is no measurement.
    """
    message, size = parse("Feedback", data), len(data)
    actuators = message.actuators
    if len(actuators) != (n or len(actuators)):
        raise InvalidFrame(f"feedback of {len(actuators)} actuators, not {n}", size)
    return Feedback(
        message.frame_id,
        _arm_state(message.base.active_state, size),
        _finite([one.position for one in actuators], _LARGEST_ANGLE, "position", size),
        _finite([one.velocity for one in actuators], _LARGEST_VALUE, "velocity", size),
        _finite([one.torque for one in actuators], _LARGEST_VALUE, "torque", size),
        tuple(one.command_id for one in actuators),
        tuple(one.fault_bank_a for one in actuators),
        tuple(one.warning_bank_a for one in actuators),
        message.base.fault_bank_a,
        tuple(one.status_flags for one in actuators),
    )


def decode_arm_state(data: bytes) -> ArmState:
    """Decode the state of the arm, or raise :class:`InvalidFrame`."""
    return _arm_state(parse("ArmStateInformation", data).active_state, len(data))


def _arm_state(value: int, size: int) -> ArmState:
    try:
        return ArmState(value)
    except ValueError:
        raise InvalidFrame(f"arm state {value}", size) from None


def decode_serial_number(data: bytes) -> str:
    """Decode a serial number; empty where the base has none.

    Raises:
        InvalidFrame: The text is invalid.
    """
    value = bytes(parse("SerialNumber", data).serial_number)
    text = value.decode("ascii", "replace").strip()
    if len(text) > _LONGEST_SERIAL or not (text.isascii() and text.isprintable()):
        raise InvalidFrame(f"serial number {value[:_LONGEST_SERIAL]!r}", len(data))
    return text


def decode_actuators(data: bytes) -> tuple[int, ...]:
    """Decode the devices of an arm; return the ids of its actuators in ascending order, from the base to the flange.

    Raises:
        InvalidFrame: It is no list of devices, or an id is there twice or cannot be carried by a frame (0 is the base).
    """
    message, size = parse("DeviceHandles", data), len(data)
    ids = sorted(one.device_identifier for one in message.device_handle if one.device_type in ACTUATORS)
    if any(not 0 < one <= _LARGEST_DEVICE for one in ids) or len(set(ids)) < len(ids):
        raise InvalidFrame(f"device ids of actuators {ids[:10]}; they are different numbers from 1 to 255", size)
    return tuple(ids)


def _finite(values: list[float], largest: float, name: str, size: int) -> Array:
    array = np.array(values)
    # NaN fails this comparison too.
    if not (np.abs(array) <= largest).all():
        raise InvalidFrame(f"a {name} that is no measurement: {values}", size)
    return array


def wrap_degrees(angle: Array) -> Array:
    """Return the same angles from -180 (included) to 180 [deg]."""
    return np.mod(angle + 180.0, 360.0) - 180.0


def to_wire(q: Array) -> Array:
    """Joint angles (n,) [rad] as they are sent, from 0 (included) to 360 [deg]."""
    return np.mod(np.degrees(q), 360.0)


class Unwrapper:
    """Converts angles on the wire into continuous joint angles.

    The first reading is taken at the turn inside the position limits of the joint; a joint without limits at the turn
    nearest to its home position. Between two readings no joint turns by half a turn: at its largest speed that takes
    over a second, much longer than the driver runs without readings.
    """

    def __init__(self, robot: RobotModel):
        limits = robot.limits
        is_limited = np.isfinite(limits.q_lower) & np.isfinite(limits.q_upper)
        lower, upper = (np.where(is_limited, limit, robot.home) for limit in (limits.q_lower, limits.q_upper))
        self._middle = np.degrees(0.5 * (lower + upper))
        self._last: Array | None = None

    def update(self, angle: Array) -> Array:
        """Return the joint angles (n,) [rad] of a reading (n,) [deg]."""
        reference = self._middle if self._last is None else self._last
        self._last = reference + wrap_degrees(angle - reference)
        return np.radians(self._last)
