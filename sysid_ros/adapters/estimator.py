"""Parts of the node ``estimator``: its parameters, and the topics of external torques and contact."""

from __future__ import annotations

from dataclasses import dataclass

from geometry_msgs.msg import WrenchStamped
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool

from sysid_ros.core.contact.monitor import Contact, ContactMonitor
from sysid_ros.core.contact.wrench import ContactSettings
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.samples import joint_state_message, wrench_message
from sysid_ros.ros.parameters import parameter, parameters_from
from sysid_ros.ros.robot import FrameParameters, RobotParameters


@dataclass(frozen=True)
class EstimatorParameters(FrameParameters, RobotParameters):
    """Parameters of the node ``estimator``."""

    publish_rate: float = parameter(2.0, "Hz", lower=0.1, upper=50.0)
    """How often the estimate is renewed while data arrive."""
    estimator: EstimatorSettings = parameters_from(EstimatorSettings, read_only=True)
    contact: ContactSettings = parameters_from(ContactSettings, read_only=True)


class ContactTopics:
    """Publishes external torques, the wrench at the tool and whether a contact is proven, while someone listens.

    ``~/external_torque`` and ``~/external_wrench`` have the middle of the bounds, the topics below them the bounds and
    the smallest force and moment along each axis of the tool that is proven for certain.

    Args:
        node: Node that publishes.
        robot: The arm.
        monitor: Source of contacts.
        tf_prefix: Prefix of the name of the tool frame.
    """

    def __init__(self, node: Node, robot: RobotModel, monitor: ContactMonitor, tf_prefix: str = ""):
        self._node, self._robot, self._monitor = node, robot, monitor
        self._frame = tf_prefix + robot.tool_frame
        self._torques = (
            node.create_publisher(JointState, "~/external_torque", qos.JOINT_STATES),
            node.create_publisher(JointState, "~/external_torque/lower", qos.JOINT_STATES),
            node.create_publisher(JointState, "~/external_torque/upper", qos.JOINT_STATES),
        )
        self._wrenches = (
            node.create_publisher(WrenchStamped, "~/external_wrench", qos.JOINT_STATES),
            node.create_publisher(WrenchStamped, "~/external_wrench/lower", qos.JOINT_STATES),
            node.create_publisher(WrenchStamped, "~/external_wrench/upper", qos.JOINT_STATES),
            node.create_publisher(WrenchStamped, "~/external_wrench/smallest_detectable", qos.JOINT_STATES),
        )
        self._contact = node.create_publisher(Bool, "~/contact", qos.STATUS)
        self._was_proven: bool | None = None

    def watch(self, monitor: ContactMonitor) -> None:
        """Publish the reports of another monitor from now on."""
        self._monitor = monitor

    def restart(self) -> None:
        """Take a new reference, as after a change of the payload."""
        self._monitor.restart()
        self._was_proven = None

    def add(self, block: SampleBlock) -> None:
        """Publish the contacts in a block that the estimator has taken.

        Raises:
            InvalidSamples: The block has another number of joints than the robot.
        """
        publishers = (*self._torques, *self._wrenches, self._contact)
        if not any(publisher.get_subscription_count() for publisher in publishers):
            self._monitor.follow(block)
            return
        for contact in self._monitor.add(block):
            self._publish(contact)

    def _publish(self, contact: Contact) -> None:
        torque, wrench, stamp = contact.torque, contact.wrench, contact.torque.stop
        for publisher, efforts in zip(self._torques, (torque.value, torque.lower, torque.upper), strict=True):
            publisher.publish(joint_state_message(stamp, self._robot.joint_names, tau=efforts))
        values = (wrench.value, wrench.lower, wrench.upper, contact.smallest)
        for publisher, value in zip(self._wrenches, values, strict=True):
            publisher.publish(wrench_message(stamp, self._frame, value))
        is_proven = bool(torque.is_proven.any())
        if is_proven is self._was_proven:
            return
        self._was_proven = is_proven
        self._contact.publish(Bool(data=is_proven))
        if is_proven:
            joints = ", ".join(
                f"{name} {low:.3g} to {high:.3g} Nm"
                for name, low, high, proven in zip(
                    self._robot.joint_names, torque.lower, torque.upper, torque.is_proven, strict=True
                )
                if proven
            )
            where = "the arm is touched elsewhere than at the tool" if wrench.is_elsewhere else "the arm is touched"
            self._node.get_logger().warning(f"{where}, or the payload has changed: external torque {joints}")
