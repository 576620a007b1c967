"""Node ``free_flyer_driver``: a simulated free-flying robot, with odometry, joints and reaction wheels on topics."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from functools import partial

import numpy as np
from nav_msgs.msg import Odometry
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty, Header, String
from std_srvs.srv import Trigger

from sysid_msgs.msg import DriverStatus, NamedArray, Trajectory
from sysid_msgs.srv import SetPayload
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.common import stamp_to_message
from sysid_ros.ros.conversions.plans import trajectory_from_message
from sysid_ros.ros.markers import TransformBroadcaster
from sysid_ros.ros.node import create_timer, spin_main
from sysid_ros.ros.parameters import NodeParameters, ParameterServer, parameter
from sysid_ros.space.adapters.driver import FreeFlyerLoop
from sysid_ros.space.adapters.messages import odometry_to_message
from sysid_ros.space.core.robot import load_free_flyer
from sysid_ros.space.simulation import FloatingState, simulate_free_flyer


@dataclass(frozen=True)
class FreeFlyerDriverParameters(NodeParameters):
    """Parameters of the node ``free_flyer_driver``."""

    model: str = parameter("servicer", read_only=True)
    """Robot: a name from config/space/ or the path of such a YAML file."""
    speed: float = parameter(1.0, "-", lower=0.01, upper=50.0, read_only=True)
    """Simulated seconds per second."""
    sample_rate: float = parameter(20.0, "Hz", lower=1.0, upper=1000.0, read_only=True)
    """Measurements per simulated second."""
    clearance: float = parameter(0.0, "m", lower=-1.0, upper=1.0, read_only=True)
    """Gap between bodies below which a trajectory is refused."""
    commander_timeout: float = parameter(5.0, "s", lower=0.1, upper=600.0)
    """Without a heartbeat for so long the robot comes to rest on its path; by the wall clock."""
    seed: int = parameter(0, "-", lower=0, read_only=True)
    """Seed of the sensor noise."""
    momentum: tuple[float, ...] = parameter((0.0,) * 6, "kg m/s, kg m^2/s", read_only=True)
    """Linear and angular momentum at the start, about the origin of the base and in its axes."""


class FreeFlyerDriverNode(Node):
    """Simulates the robot, publishes the measurements of its sensors, and follows trajectories from ``~/trajectory``.

    The pose of the base is on ``/tf`` too, where ROS has it.

    A trajectory is answered on ``~/status``: followed under its hash, or refused with a code and a sentence.
    """

    def __init__(self) -> None:
        super().__init__("free_flyer_driver")
        self._config = ParameterServer(self, FreeFlyerDriverParameters)
        values = self._config.values
        self._robot = load_free_flyer(values.model)
        truth = self._robot.tree.parameters if self._robot.truth is None else self._robot.truth
        if len(values.momentum) != 6:
            raise ParameterOutOfRange("parameter 'momentum'", values.momentum, "six numbers")
        simulation = simulate_free_flyer(self._robot, truth, values.momentum)
        self._loop = FreeFlyerLoop(simulation, values.clearance, values.seed)
        self._names = [*self._robot.joint_names, *self._robot.wheels.names]
        self._start_ns = self.get_clock().now().nanoseconds
        self._code, self._text = DriverStatus.CODE_OK, "holds its posture"
        self._heard = -np.inf
        self._odometry_publisher = self.create_publisher(Odometry, "~/odometry", qos.SAMPLES)
        self._transforms = TransformBroadcaster(self)
        self._joint_publisher = self.create_publisher(JointState, "joint_states", qos.SAMPLES)
        self._status_publisher = self.create_publisher(DriverStatus, "~/status", qos.STATUS)
        description = self.create_publisher(String, "robot_description", qos.LATCHED)
        description.publish(String(data=self._robot.urdf))
        self._truth_publisher = self.create_publisher(NamedArray, "~/truth", qos.LATCHED)
        self._truth_publisher.publish(NamedArray(name="parameters", shape=[truth.size], data=truth.tolist()))
        self._held_publisher = self.create_publisher(NamedArray, "~/held", qos.LATCHED)
        self._drift_publisher = self.create_publisher(NamedArray, "~/drift", qos.LATCHED)
        self._publish_held()
        self.create_subscription(Trajectory, "~/trajectory", self._take_trajectory, 1)
        self.create_subscription(Empty, "~/heartbeat", self._take_heartbeat, 1)
        self.create_service(Trigger, "~/brake", self._brake)
        self.create_service(SetPayload, "~/set_payload", self._set_payload)
        create_timer(self, 1.0 / (values.sample_rate * values.speed), self._tick)
        create_timer(self, 0.2, self._publish_status)
        create_timer(self, 1.0, self._publish_drift)
        kind = type(self._loop.simulation).__name__
        self.get_logger().info(f"ready: '{self._robot.name}' floats at rest ({kind}); send ~/trajectory")

    def close(self) -> None:
        """Log how well momentum was conserved."""
        drift = ", ".join(f"{value:.1e}" for value in self._loop.drift)
        self.get_logger().info(f"largest change of momentum, which should stay [kg m/s, kg m^2/s]: {drift}")

    def _take_trajectory(self, message: Trajectory) -> None:
        self._heard = time.monotonic()
        try:
            self._loop.admit(trajectory_from_message(message, self._names))
            self._code, self._text = DriverStatus.CODE_OK, "follows a trajectory"
        except SysidError as error:
            self._code, self._text = DriverStatus.CODE_LIMIT, str(error)
            self.get_logger().error(str(error))
        self._publish_status(message.hash)

    def _take_heartbeat(self, _: Empty) -> None:
        self._heard = time.monotonic()

    def _brake(self, _: Trigger.Request, response: Trigger.Response) -> Trigger.Response:
        response.success = self._loop.brake()
        response.message = "comes to rest on its path" if response.success else "it follows nothing"
        if response.success:
            self._code, self._text = DriverStatus.CODE_BRAKE_REQUESTED, response.message
        return response

    def _set_payload(self, request: SetPayload.Request, response: SetPayload.Response) -> SetPayload.Response:
        """Let the last body catch or release an object that has moved along with it; about the last joint's frame."""
        is_detached = request.operation == SetPayload.Request.DETACH
        try:
            self._loop.hold(np.zeros(10) if is_detached else np.array(request.payload))
            response.success = True
            self._publish_held()
        except SysidError as error:
            response.message = str(error)
        return response

    def _publish_held(self) -> None:
        held = np.zeros(10 * self._robot.tree.count)
        held[-10:] = self._loop.held
        self._held_publisher.publish(NamedArray(name="held", shape=[held.size], data=held.tolist()))

    def _publish_drift(self) -> None:
        self._drift_publisher.publish(NamedArray(name="drift", shape=[6], data=self._loop.drift.tolist()))

    def _tick(self) -> None:
        followed = self._loop.followed
        is_silent = time.monotonic() - self._heard > self._config.values.commander_timeout
        if followed and is_silent and self._loop.brake():
            self._code, self._text = DriverStatus.CODE_STALE, "no heartbeat from the commanding side: comes to rest"
            self.get_logger().error(self._text)
        self._loop.advance(1.0 / self._config.values.sample_rate)
        if followed and not self._loop.followed:
            self._text = "holds its posture"
        self._publish(self._loop.measure())

    def _publish(self, measured: FloatingState) -> None:
        stamp = stamp_to_message(self._start_ns + round(1e9 * measured.time))
        odometry = odometry_to_message(self._robot, measured, stamp)
        self._odometry_publisher.publish(odometry)
        self._transforms.send(odometry.header, odometry.child_frame_id, odometry.pose.pose)
        header = Header(stamp=stamp, frame_id=self._robot.base_link)
        self._joint_publisher.publish(
            JointState(
                header=header, name=self._names, position=measured.q.tolist(), velocity=measured.v.tolist()
            )
        )  # fmt: skip

    def _publish_status(self, refused: str = "") -> None:
        """Publish the status; after a trajectory with its hash, which is refused if it is not followed."""
        loop, followed = self._loop, self._loop.followed
        now = self._start_ns + round(1e9 * loop.simulation.state.time)
        mode = DriverStatus.MODE_HOLD
        if followed:
            mode = DriverStatus.MODE_BRAKE if loop.is_braking else DriverStatus.MODE_TRACK
        self._status_publisher.publish(
            DriverStatus(
                header=Header(stamp=stamp_to_message(now), frame_id=self._robot.base_link),
                joint_names=self._names,
                mode=mode,
                code=self._code,
                text=self._text,
                is_simulated=True,
                timing=DriverStatus.TIMING_TOPICS,
                plan_id=followed or refused,
                progress=loop.progress,
                reference_position=loop.reference.tolist(),
            )
        )


main = partial(spin_main, FreeFlyerDriverNode)

if __name__ == "__main__":
    sys.exit(main())
