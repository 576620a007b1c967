"""What connects an arm under ros2_control: the driver's logic knows no ROS, so somebody who does implements this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.ros2_control.joint_states import JointStates
from sysid_ros.drivers.takeover import TakeoverRefused


@dataclass(frozen=True)
class ControllerInfo:
    """What an effort controller says of itself.

    Attributes:
        joints: Its joints, in the order of its commands.
        interface: The command interface it writes to.
    """

    joints: tuple[str, ...]
    interface: str = "effort"


class JointLink(Protocol):
    """The topics of one arm."""

    states_name: str
    """Where states come from, for messages to people."""
    commands_name: str
    """Where commands go; empty where none can be sent."""

    def now(self) -> float:
        """Time on this computer [s]; only differences count."""

    def next(self, timeout: float) -> JointStates | None:
        """The next message, after waiting for at most ``timeout`` [s]; None if there was none."""

    def waiting(self) -> int:
        """Messages that have arrived and were not yet asked for."""

    def send(self, torque: Sequence[float], position: Sequence[float]) -> None:
        """Sends commands in the order of the controller's joints [Nm], [rad]; not every type has positions."""

    def describe_silence(self) -> str:
        """Who publishes states, for a message to people who hear none."""

    def find_command_problem(self) -> str:
        """Why commands would not arrive, or not only ours; empty where all is well."""

    def ask_controller(self, timeout: float) -> ControllerInfo | None:
        """What the effort controller says of itself; None where it does not answer within ``timeout`` [s]."""

    def switch(self, is_torque: bool, timeout: float) -> str:
        """Lets the controller manager activate the effort controller, or the one that holds the arm.

        Returns:
            Why it could not be done; empty if it was, or if there is no such controller to switch to.
        """

    @property
    def has_hold_controller(self) -> bool:
        """Whether there is a controller that holds the arm when ours does not."""

    def close(self) -> None:
        """Ends the connection."""


OpenLink = Callable[[], JointLink]


def order_of_commands(robot: RobotModel, given: tuple[str, ...], told: ControllerInfo | None) -> tuple[int, ...]:
    """Which joint of the model each entry of a command is for.

    Args:
        robot: Joint names.
        given: Joints in the order of the commands, as set by the user; empty for none.
        told: What the controller says; None if it does not answer.

    Returns:
        Index of the model's joint for each entry, (n,).

    Raises:
        TakeoverRefused: Nobody says the order, the two disagree, or it is not an order of exactly the model's joints.
    """
    if told is not None and told.interface != "effort":
        raise TakeoverRefused(
            f"the controller writes to the interface '{told.interface}', not to 'effort'; torques must not go there"
        )
    if told is not None and given and told.joints != given:
        raise TakeoverRefused(
            f"the controller takes commands in the order {', '.join(told.joints)}, command_joints says "
            f"{', '.join(given)}"
        )
    joints = told.joints if told is not None else given
    if not joints:
        raise TakeoverRefused(
            "the order of the commands is not known: the effort controller does not answer to get_parameters; set "
            "command_joints to its parameter 'joints'"
        )
    if sorted(joints) != sorted(robot.joint_names):
        raise TakeoverRefused(
            f"commands are for the joints {', '.join(joints)}; the model has {', '.join(robot.joint_names)}"
        )
    return tuple(robot.joint_names.index(name) for name in joints)
