"""Taking a resting arm over, step by step; any mismatch ends it before a motion."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.kuka_fri.link import FriLink
from sysid_ros.drivers.kuka_fri.messages import (
    CommandMode,
    ControlMode,
    Monitoring,
    OverlayType,
    SafetyState,
    SessionState,
)
from sysid_ros.drivers.kuka_fri.settings import FriSettings, TorqueSetup
from sysid_ros.drivers.takeover import RestMonitor, TakeoverRefused


def wait_for_controller(link: FriLink, settings: FriSettings) -> None:
    """Wait until the controller monitors, and answer it.

    Raises:
        TakeoverRefused: It sends nothing, stays IDLE, sends messages of another version, or at another period.
    """
    before = link.session.last
    message = _follow(link, settings, lambda m: m.state is not SessionState.IDLE)
    if message is None:
        if link.session.last is before:  # the state of the session is old, if there is one
            raise TakeoverRefused(
                f"no message of an FRI {settings.version.value} controller came for {settings.connect_timeout:g} s "
                f"({link.describe_timeout()}); is its application running, with this computer's address and port?"
            )
        raise TakeoverRefused(f"the session stayed in {link.session.state.name}; restart the controller's application")
    if abs(message.period - settings.period) > 1e-9:
        raise TakeoverRefused(
            f"the controller wants a command every {1e3 * message.period:g} ms (send period "
            f"{1e3 * message.send_period:g} ms, receive multiplier {message.receive_multiplier}), this driver is set "
            f"up for {1e3 * settings.period:g} ms"
        )
    link.answer()


def measure_at_rest(link: FriLink, settings: FriSettings, robot: RobotModel) -> tuple[Array, Array]:
    """Measure the arm while its own controller holds it, and compare it with its model.

    Returns:
        Mean positions (7,) [rad] and efforts in joint direction (7,) [Nm].

    Raises:
        TakeoverRefused: The arm moves, or its torque limits are too low to hold it.
    """
    rest = RestMonitor(robot, settings.rest_time, settings.period)
    sign = robot.sensors.effort_sign

    def rests(message: Monitoring) -> bool:
        return message.q is not None and message.tau is not None and rest.add(message.q, sign * message.tau)

    if _follow(link, settings, rests) is None:
        if not rest.is_full:
            raise TakeoverRefused(f"the controller sends no more messages ({link.describe_timeout()})")
        raise TakeoverRefused(f"{rest.find_motion()}")
    link.answer()
    return rest.check()


def check_compensation(link: FriLink, settings: FriSettings, robot: RobotModel, effort: Array, modelled: Array) -> None:
    """Compare the controller's compensation with the torques this driver will subtract, ``modelled`` (7,) [Nm].

    The external torque is the measured one less the torque of the controller's own model, so at rest the model's
    gravity is the joint effort, (7,) [Nm], plus the external torque.

    Raises:
        TakeoverRefused: They differ by more than the tolerance.
    """
    message = link.session.last
    if settings.setup is not TorqueSetup.OVERLAY or message is None or message.tau_external is None:
        return
    difference = effort + message.tau_external - modelled
    joint = int(np.abs(difference).argmax())
    if abs(difference[joint]) > settings.compensation_tolerance:
        raise TakeoverRefused(
            f"the controller compensates {effort[joint] + message.tau_external[joint]:.2f} Nm of gravity in "
            f"{robot.joint_names[joint]}, this driver expects {modelled[joint]:.2f} Nm (allowed difference "
            f"{settings.compensation_tolerance:g} Nm); give it the load that is configured on the controller, or "
            "identify the arm first"
        )


def wait_for_torque_mode(link: FriLink, settings: FriSettings) -> Monitoring:
    """Mirror the interpolated position, with zero torque, until torques act.

    Raises:
        TakeoverRefused: The application does not start commanding, or not in torque mode.
    """

    def is_active(message: Monitoring) -> bool:
        if not message.state.is_commanding:
            return False
        if message.command_mode is not CommandMode.TORQUE or message.overlay is not OverlayType.JOINT:
            mode = CommandMode.NO_COMMAND if message.command_mode is None else message.command_mode
            raise TakeoverRefused(
                f"the client command mode is {mode.name}; the controller's application has to overlay with "
                "ClientCommandMode.TORQUE"
            )
        return message.state is SessionState.COMMANDING_ACTIVE

    message = _follow(link, settings, is_active, mirrors=True)
    if message is None:
        raise TakeoverRefused(
            f"no COMMANDING_ACTIVE for {settings.connect_timeout:g} s, the session is in {link.session.state.name} "
            f"with quality {link.session.quality.name}; start the motion in the controller's application"
        )
    if message.control_mode is not ControlMode.JOINT_IMPEDANCE:
        name = "none" if message.control_mode is None else message.control_mode.name
        raise TakeoverRefused(f"the control mode is {name}; torques act under JOINT_IMPEDANCE only")
    return message


def _follow(
    link: FriLink, settings: FriSettings, is_done: Callable[[Monitoring], bool], mirrors: bool = False
) -> Monitoring | None:
    """Answer every message until ``is_done``; that one is not answered yet.

    With ``mirrors``, messages of the commanding states are answered. If not, the controller goes back to monitoring,
    where it holds the arm; answered with zero torque in COMMANDING_ACTIVE, the arm would float and could sink.
    """
    deadline = time.monotonic() + settings.connect_timeout
    while (remaining := deadline - time.monotonic()) > 0.0:
        message = link.next(min(remaining, settings.session_timeout))
        if message is None:
            continue
        if message.safety not in (None, SafetyState.NORMAL_OPERATION):
            raise TakeoverRefused(f"a safety stop is in force ({message.safety.name})")
        if message.state.is_commanding and not mirrors:
            continue
        if is_done(message):
            return message
        link.answer()
    return None
