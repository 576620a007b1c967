"""Storms of messages that nobody should send; run as a program, one blows until its standard input is closed."""

from __future__ import annotations

import contextlib
import select
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import _table  # noqa: F401 - makes this checkout importable
import numpy as np
import rclpy
from geometry_msgs.msg import Point
from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
from rcl_interfaces.srv import SetParameters
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Empty, String
from std_srvs.srv import Trigger
from visualization_msgs.msg import Marker, MarkerArray

from sysid_msgs.action import Identify
from sysid_msgs.msg import (
    CertifiedTrajectory,
    ControlLaw,
    DriverStatus,
    ParameterEstimate,
    SampleBatch,
    Scene,
    SimulationTruth,
)
from sysid_msgs.srv import ApplyEstimate, CertifyTrajectory, ExecuteTrajectory, PlanNext, ResetEstimator
from sysid_ros.ros import qos
from sysid_ros.ros.other_nodes import TOPIC as ALIVE

RATE = 1000.0
"""Messages per second."""
LARGE = 20 << 20
"""Size of a large message [bytes]."""
JOINTS = [f"joint_{number}" for number in range(1, 8)]


@dataclass(frozen=True)
class Storm:
    """One storm.

    Attributes:
        name: Its name.
        make: Returns what sends one message on a node.
        rate: Messages per second.
    """

    name: str
    make: Callable[[Node], Callable[[], None]]
    rate: float = RATE


def _topic(kind: type, topic: str, profile: Any, message: Any) -> Callable[[Node], Callable[[], None]]:
    def make(node: Node) -> Callable[[], None]:
        publisher = node.create_publisher(kind, topic, profile)
        return lambda: publisher.publish(message)

    return make


def _services(*calls: tuple[type, str, Any]) -> Callable[[Node], Callable[[], None]]:
    def make(node: Node) -> Callable[[], None]:
        clients = [(node.create_client(kind, name), request) for kind, name, request in calls]
        number = 0

        def send() -> None:
            nonlocal number
            client, request = clients[number % len(clients)]
            number += 1
            future = client.call_async(request)
            if number % 100 == 0:
                client.remove_pending_request(future)
            rclpy.spin_once(node, timeout_sec=0.0)

        return send

    return make


def _unreadable(*topics: tuple[type, str, Any]) -> Callable[[Node], Callable[[], None]]:
    """Return what sends, on one topic after the other, bytes that are no message of its type."""

    def make(node: Node) -> Callable[[], None]:
        publishers = [node.create_publisher(kind, topic, profile) for kind, topic, profile in topics]
        number = 0

        def send() -> None:
            nonlocal number
            with contextlib.suppress(RuntimeError):  # a queue that is full takes no more
                publishers[number % len(publishers)].publish(bytes([0, 1, 0, 0, 255, 255, 255, 255, number % 256]))
            number += 1

        return send

    return make


def _many_parameters() -> SetParameters.Request:
    value = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=float("nan"))
    return SetParameters.Request(parameters=[Parameter(name="publish_rate", value=value)] * 100)


def _random_batch() -> SampleBatch:
    rng, count = np.random.default_rng(0), 20
    now = time.time_ns()
    return SampleBatch(
        joint_names=JOINTS, stamps=[now + 1_000_000 * k for k in range(count)],
        positions=rng.normal(size=7 * count).tolist(), velocities=rng.normal(size=7 * count).tolist(),
        efforts=(100.0 * rng.normal(size=7 * count)).tolist(), modes=[1] * count,
    )  # fmt: skip


def _cut(batch: SampleBatch) -> SampleBatch:
    batch.positions = batch.positions[:11]
    return batch


def _far_and_large() -> Marker:
    marker = Marker(type=Marker.CUBE, ns="storm", points=[Point()] * (LARGE // 24))
    marker.header.frame_id = "base_link"
    marker.pose.position.x, marker.pose.orientation.w = 50.0, 1.0
    marker.scale.x = marker.scale.y = marker.scale.z = 0.1
    return marker


def _nan_status() -> DriverStatus:
    nan = float("nan")
    return DriverStatus(mode=DriverStatus.MODE_HOLD, joint_names=JOINTS, reference_position=[nan] * 7)


TOPICS = (
    (SampleBatch, "/arm_driver/samples", qos.SAMPLES),
    (Empty, "/arm_driver/heartbeat", 1),
    (JointState, "/joint_states", qos.JOINT_STATES),
    (Scene, "/safe_planner/scene", qos.LATCHED),
    (CertifiedTrajectory, "/safe_planner/plan", qos.LATCHED),
    (ControlLaw, "/arm_driver/control_law", qos.LATCHED),
    (ParameterEstimate, "/estimator/estimate", qos.LATCHED),
    (DriverStatus, "/arm_driver/status", qos.STATUS),
    (String, "/robot_description", qos.LATCHED),
    (MarkerArray, "/obstacles", qos.OBSTACLES_VOLATILE),
    (SimulationTruth, "/arm_driver/truth", qos.LATCHED),
    *((Empty, f"/{name}/{ALIVE}", qos.ALIVE) for name in ("arm_driver", "estimator", "safe_planner")),
)
"""Topics that nodes of the suite listen to."""
STORMS = (
    Storm("unreadable bytes on all topics", _unreadable(*TOPICS)),
    Storm("forged signs of life", _topic(Empty, f"/safe_planner/{ALIVE}", qos.ALIVE, Empty())),
    Storm("foreign samples", _topic(SampleBatch, "/arm_driver/samples", qos.SAMPLES, _random_batch())),
    Storm("samples cut short", _topic(SampleBatch, "/arm_driver/samples", qos.SAMPLES, _cut(_random_batch()))),
    Storm("heartbeats", _topic(Empty, "/arm_driver/heartbeat", 1, Empty())),
    Storm("joint states", _topic(JointState, "/joint_states", qos.JOINT_STATES, JointState(name=JOINTS))),
    Storm("empty scenes", _topic(Scene, "/safe_planner/scene", qos.LATCHED, Scene())),
    Storm("empty plans", _topic(CertifiedTrajectory, "/safe_planner/plan", qos.LATCHED, CertifiedTrajectory())),
    Storm("empty control laws", _topic(ControlLaw, "/arm_driver/control_law", qos.LATCHED, ControlLaw())),
    Storm("empty estimates", _topic(ParameterEstimate, "/estimator/estimate", qos.LATCHED, ParameterEstimate())),
    Storm("status of NaN", _topic(DriverStatus, "/arm_driver/status", qos.STATUS, _nan_status())),
    Storm("20 MB texts", _topic(String, "/robot_description", qos.LATCHED, String(data="x" * LARGE)), 2.0),
    Storm(
        "20 MB of markers",
        _topic(MarkerArray, "/obstacles", qos.OBSTACLES_VOLATILE, MarkerArray(markers=[_far_and_large()])),
        1.0,
    ),
    Storm(
        "empty requests",
        _services(
            (ExecuteTrajectory, "/arm_driver/execute", ExecuteTrajectory.Request()),
            (ApplyEstimate, "/arm_driver/set_model", ApplyEstimate.Request()),
            (PlanNext, "/safe_planner/plan_next", PlanNext.Request()),
            (CertifyTrajectory, "/safe_planner/certify", CertifyTrajectory.Request()),
        ),
        200.0,
    ),
    Storm(
        "resets and brakes",
        _services(
            (ResetEstimator, "/estimator/reset", ResetEstimator.Request(reason="storm")),
            (Trigger, "/arm_driver/brake", Trigger.Request()),
            (Trigger, "/safe_planner/cancel", Trigger.Request()),
        ),
        100.0,
    ),
    Storm(
        "20 MB requests",
        _services(
            (ResetEstimator, "/estimator/reset", ResetEstimator.Request(reason="x" * LARGE)),
            (ApplyEstimate, "/arm_driver/set_model", ApplyEstimate.Request(nominal_payload=[0.0] * (LARGE // 8))),
        ),
        2.0,
    ),
    Storm(
        "goals and parameters",
        _services(
            (
                Identify.Impl.SendGoalService,
                "/identification/identify/_action/send_goal",
                Identify.Impl.SendGoalService.Request(goal=Identify.Goal(max_motion_time=float("nan"))),
            ),
            (SetParameters, "/estimator/set_parameters", _many_parameters()),
            (SetParameters, "/arm_driver/set_parameters", _many_parameters()),
        ),
        50.0,
    ),
)


def main() -> None:
    storm = next(one for one in STORMS if one.name == sys.argv[1])
    rclpy.init(args=[])
    node = Node("storm")
    send, sent, started = storm.make(node), 0, time.monotonic()
    while not select.select([sys.stdin], [], [], 0.0)[0]:
        ahead = sent / storm.rate - (time.monotonic() - started)
        if ahead > 0.0:
            time.sleep(min(ahead, 0.02))
            continue
        send()
        sent += 1
    print(sent)
    node.destroy_node()
    rclpy.try_shutdown()


if __name__ == "__main__":
    main()
