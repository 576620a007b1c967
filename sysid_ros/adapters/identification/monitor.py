"""Subscriptions of the node ``identification``: the latest message of every other node, and all during a goal."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from sysid_msgs.msg import CertifiedTrajectory, ControlLaw, DriverStatus, SampleBatch, SimulationTruth
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.msg import Scene as SceneMessage
from sysid_ros.core.certification.authentication import AuthenticationKey
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.procedure import CertifiedPlan, PayloadModel
from sysid_ros.drivers.ros2_control.arm import NO_GUARANTEE
from sysid_ros.reports.recordings.files import SERIAL
from sysid_ros.reports.recordings.recording import FIRST_STAMP, GRIPPER, LAST_STAMP, RecordingWriter
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.authentication import is_genuine
from sysid_ros.ros.conversions.common import stamp_from_message
from sysid_ros.ros.conversions.estimate import estimate_from_message, information_from_message, truth_from_message
from sysid_ros.ros.conversions.plans import certified_plan_from_message, control_law_from_message, scene_from_message
from sysid_ros.ros.conversions.samples import Samples, samples_from_message
from sysid_ros.ros.markers import Pictures, contents_of
from sysid_ros.ros.other_nodes import Peers
from sysid_ros.ros.subscriptions import Inbox, SingleSource, SourceReceiver

MOVING_MODES = (DriverStatus.MODE_TRACK, DriverStatus.MODE_BRAKE)
"""Modes of the driver in which the arm moves."""
_ALL_OF_THEM = 2**63 - 1
_KEPT_PLANS, _REMEMBERED_ANSWERS = 16, 10


class Stated(NamedTuple):
    """Statements of a goal about its run.

    Attributes:
        gripper: State of the gripper; empty: the estimator's parameter, or any of them.
        mass: Mass of the payload, from a scale [kg]; 0: not known.
        mass_tolerance: Its largest error [kg].
    """

    gripper: str = ""
    mass: float = 0.0
    mass_tolerance: float = 0.0

    def find_other(self, message: EstimateMessage) -> str:
        """Return in words the other assumptions of an estimate; empty for none."""
        if message.gripper not in ("", self.gripper):
            return f"the gripper in state '{message.gripper:.40}'"
        if (message.stated_mass, message.stated_mass_tolerance) not in ((0.0, 0.0), (self.mass, self.mass_tolerance)):
            return f"a payload of {message.stated_mass:g} kg"
        return ""


NOTHING = Stated()


@dataclass
class Records:
    """Messages of one goal, for its files.

    Attributes:
        samples: Sample batches in order.
        estimates: (Stamp of the last sample used [ns], estimate), in order.
        plans: (Stamp of the start [ns], plan that was executed), in order.
        information: Gram matrix of the windows, (10, 10).
        truth: True payload of a simulated arm, (10,), None on hardware.
        timing: How long each part took [s].
        timing_doubt: Why the timing that certificates assume was not ensured while the arm moved; None if it was.
        first_stamp_ns: The estimator began anew after the samples before this stamp [ns].
        gripper: State of the gripper that it counts on since then; empty for any of them.
        tare: The tare that it counts on since then, in words; empty for none.
        serial_number: Serial number of the arm, as its driver reports; empty where it is not known.
    """

    samples: list[Samples] = field(default_factory=list)
    estimates: list[tuple[int, ParameterEstimate]] = field(default_factory=list)
    plans: list[tuple[int, CertifiedPlan]] = field(default_factory=list)
    information: NDArray[np.float64] = field(default_factory=lambda: np.zeros((10, 10)))
    truth: NDArray[np.float64] | None = None
    timing: dict[str, float] = field(default_factory=dict)
    timing_doubt: str | None = None
    first_stamp_ns: int = 0
    gripper: str = ""
    tare: str = ""
    serial_number: str = ""


class TareSamples(NamedTuple):
    """Data of the last tare, with its description by the estimator and the stated gripper."""

    text: str
    samples: SampleBlock
    gripper: str


def join_samples(parts: Sequence[Samples]) -> tuple[SampleBlock, dict[str, np.ndarray]]:
    """All usable samples in one block, and the desired and commanded values, each (N, n)."""
    stamps = np.concatenate([part.stamps[part.valid] for part in parts])
    _, first = np.unique(stamps, return_index=True)
    columns = {
        name: np.concatenate([getattr(part, name)[part.valid] for part in parts])[first]
        for name in ("sequence", "q", "v", "tau", "q_d", "v_d", "tau_command")
    }
    block = SampleBlock(stamps[first], columns["sequence"], columns["q"], columns["v"], columns["tau"])
    return block, {name: columns[name] for name in ("q_d", "v_d", "tau_command")}


def samples_of_estimate(records: Records) -> SampleBlock | None:
    """Return the samples that the last estimate rests on: of the present payload, from where the estimator began."""
    if not records.samples:
        return None
    epoch = records.samples[-1].payload_epoch
    block, _ = join_samples([part for part in records.samples if part.payload_epoch == epoch])
    first = int(np.searchsorted(block.stamps, records.first_stamp_ns))
    return block.slice(first) if first < len(block) else None


def find_timing_doubt(status: DriverStatus) -> str | None:
    """Return why torques may not act within one period, as certificates assume; None if they do or nothing moves."""
    if status.mode not in MOVING_MODES:
        return None
    unknown = "that torques act within one period, as the certificates of its motions assume, is not known"
    if status.timing == DriverStatus.TIMING_TOPICS:
        return f"the arm was moved {NO_GUARANTEE}: {unknown}"
    if status.timing != DriverStatus.TIMING_REAL_TIME and not status.is_simulated:
        return f"the driver of the arm had no real-time scheduling: {unknown}"
    return None


class PlanProgress(NamedTuple):
    """Part of a plan that was done (0..1), by the arm's clock [ns], in the last status of the driver."""

    stamp_ns: int
    progress: float


class SuiteMonitor:
    """Subscribe to the suite. Its callbacks run in the node's executor, everything else in the thread of a goal.

    Args:
        node: The node it belongs to.
        robot: The robot.
        key: Key that estimates are signed with; None without one.

    Attributes:
        records: Messages of the present or last goal.
        tare: The last tare that ended well, with its samples; None without one.
        known_model: The last model sent to the controller; None where the next move may not assume it.
        status: Latest status of the driver, None before the first.
        status_time: When it came, monotonic [s].
        followed: The last plans that the driver reported to follow, by plan_id, the oldest first.
        check_times: How long the driver took to answer to the last plans, which it proves first [s].
        sample_stamp_ns: Stamp of the latest sample [ns].
        sample_time: When it came, monotonic [s].
        sample_epoch: Number of its payload; None before the first.
        sample_fault: Why the latest batch of samples could not be used; None if it could.
        estimate: Latest estimate of the present payload, None before the first.
        estimate_fault: Why the latest estimate may not be used; None if it may.
        scene: Scene of the safe planner; None where it is not known.
        peers: Which of the nodes that a goal needs are alive.
        control_law: Control law of the driver; None if unknown, or a law that plans cannot be proven for.
    """

    def __init__(self, node: Node, robot: RobotModel, key: AuthenticationKey | None = None):
        self._node = node
        self._robot, self._key = robot, key
        self._lock = threading.Lock()
        self.records = Records()
        self.tare: TareSamples | None = None
        self.known_model: PayloadModel | None = None
        self.status: DriverStatus | None = None
        self.status_time = -np.inf
        self.followed: dict[str, PlanProgress] = {}
        self.check_times: deque[float] = deque(maxlen=_REMEMBERED_ANSWERS)
        self.sample_stamp_ns = 0
        self.sample_time = -np.inf
        self.sample_epoch: int | None = None
        self.sample_fault: str | None = None
        self.estimate: ParameterEstimate | None = None
        self.estimate_fault: str | None = None
        self.scene: Scene | None = None
        self.control_law: RobustSettings | None = None
        self._estimate_message: EstimateMessage | None = None
        self._last_received: tuple[ParameterEstimate, EstimateMessage] | None = None
        self._past_until_ns = _ALL_OF_THEM
        self._stated = NOTHING  # the latest statements of goals
        self._is_recording = False
        self._recorder: RecordingWriter | None = None
        self._pictures: Pictures | None = None
        self._scene_fault: str | None = None
        self._has_scene = False
        self._latched: dict[str, Any] = {}
        self.peers = Peers(node, ("arm_driver", "estimator", "safe_planner", "excitation_planner"))
        self._sources: list[SingleSource] = []
        self._joint_states = Inbox(node, JointState, "joint_states", qos.JOINT_STATES_SUBSCRIBER, raw=True)
        self._listen(SampleBatch, "arm_driver/samples", self._take_samples, qos.SAMPLES)
        self._listen(DriverStatus, "arm_driver/status", self._take_status, qos.STATUS)
        self._listen(EstimateMessage, "estimator/estimate", self._take_estimate, qos.LATCHED)
        self._listen(SceneMessage, "safe_planner/scene", self._take_scene, qos.SCENE)
        self._listen(ControlLaw, "arm_driver/control_law", self._take_control_law, qos.LATCHED)
        node.create_subscription(SimulationTruth, "arm_driver/truth", self._take_truth, qos.LATCHED)
        node.create_subscription(CertifiedTrajectory, "safe_planner/plan", self._take_plan, qos.LATCHED)
        node.create_subscription(String, "robot_description", self._take_description, qos.LATCHED)

    # For the thread of a goal

    def begin(self, recorder: RecordingWriter | None) -> None:
        """Start a goal: forget the messages of the last one, and write its own with a recorder, if there is one.

        Estimates count from :meth:`forget_estimates` or :meth:`use_estimates` on.
        """
        for source in self._sources:
            source.release_if_silent()
        with self._lock:
            self.records = Records(truth=self.records.truth)
            self.estimate, self._estimate_message = None, None
            self._past_until_ns, self.estimate_fault = _ALL_OF_THEM, None
            self._is_recording = True
            self.followed.clear()
            self._recorder = recorder
            self._pictures = None if recorder is None else Pictures(self._robot, self._write)
            for topic, message in self._latched.items():
                self._record(topic, message, self._now_ns)
            if self._pictures is not None and self._has_scene:
                self._pictures.on_scene(self.scene, self._scene_fault, self._now_ns)

    def end(self, final: ParameterEstimate | None = None) -> None:
        """End a goal and complete the recording, which says what samples the final (or latest) estimate rests on.

        Raises:
            SysidError: Not everything is in the recording.
        """
        with self._lock:
            self._is_recording = False
            recorder, self._recorder, self._pictures = self._recorder, None, None
            stamps = [stamp_ns for stamp_ns, estimate in self.records.estimates if final is None or estimate is final]
        if recorder is not None and stamps:
            recorder.describe(**{LAST_STAMP: str(stamps[-1])})
        if recorder is not None and self.records.serial_number:
            recorder.describe(**{SERIAL: self.records.serial_number})
        if recorder is not None:
            recorder.close()

    def forget_plan(self, plan_id: str) -> None:
        """Forget reports of an earlier execution of this plan_id, before it is executed again."""
        with self._lock:
            self.followed.pop(plan_id, None)

    def forget_estimates(self, until_ns: int, stated: Stated = NOTHING, tare: str = "") -> None:
        """Leave out every estimate, past or still on its way, that rests on samples up to a stamp [ns] alone.

        Later ones count on the statements, and on a tare, in words; empty for none.
        """
        with self._lock:
            self._past_until_ns, self.records.first_stamp_ns = until_ns, until_ns + 1
            self._stated, self.records.gripper = stated, stated.gripper
            self.records.tare = tare
            self.estimate_fault = None
            self.estimate, self._estimate_message = None, None
            if self._recorder is not None:
                self._recorder.describe(**{FIRST_STAMP: str(until_ns + 1), GRIPPER: stated.gripper})

    @property
    def source_conflict(self) -> str | None:
        """Sentence about a second publisher of a subscribed topic; None while there is none."""
        return next((fault for source in self._sources if (fault := source.fault) is not None), None)

    def use_estimates(self) -> None:
        """Count all estimates from now on, the latest that was received included: the payload is still the same."""
        with self._lock:
            self._past_until_ns = 0
            if self._last_received is not None and not self._stated.find_other(self._last_received[1]):
                self.estimate, self._estimate_message = self._last_received

    @property
    def estimate_stamp_ns(self) -> int:
        """Stamp of the last sample the latest estimate uses [ns]."""
        message = self._estimate_message
        return stamp_from_message(message.header.stamp) if message is not None else 0

    @property
    def information(self) -> NDArray[np.float64]:
        """Gram matrix of the data so far, (10, 10)."""
        message = self._estimate_message
        return np.zeros((10, 10)) if message is None else information_from_message(message)

    @property
    def stated_mass(self) -> tuple[float, float]:
        """Mass of the payload that the latest estimate counts on, and its tolerance [kg]; 0: none."""
        message = self._estimate_message
        return (0.0, 0.0) if message is None else (message.stated_mass, message.stated_mass_tolerance)

    @property
    def is_moving(self) -> bool:
        """Whether the driver reports that the arm moves."""
        return self.status is not None and self.status.mode in MOVING_MODES

    # Subscriptions

    def _listen(self, kind: type, topic: str, take: Callable[[Any], None], profile: QoSProfile) -> None:
        def tell_refused(fault: str) -> None:
            if kind is SampleBatch:
                self.sample_fault = fault

        self._sources.append(SourceReceiver(self._node, kind, topic, take, profile, tell_refused).source)

    def _take_samples(self, batch: SampleBatch) -> None:
        try:
            samples = samples_from_message(batch, self._robot.joint_names)
        except SysidError as error:
            self.sample_fault = str(error)
            self._node.get_logger().error(f"arm_driver/samples: {error}", throttle_duration_sec=5.0)
            return
        if not samples.stamps.size:
            return
        self._take_joint_states()
        with self._lock:
            self.sample_fault = None
            self.sample_stamp_ns, self.sample_time = int(samples.stamps[-1]), time.monotonic()
            self.sample_epoch = samples.payload_epoch
            if self._is_recording:
                self.records.samples.append(samples)
            self._record("arm_driver/samples", batch, self.sample_stamp_ns)
            if self._pictures is not None:
                self._pictures.on_posture(samples.q[-1], self.sample_stamp_ns)

    def _take_status(self, status: DriverStatus) -> None:
        with self._lock:
            self.status, self.status_time = status, time.monotonic()
            stamp_ns = stamp_from_message(status.header.stamp)
            if status.plan_id:
                self.followed[status.plan_id] = PlanProgress(stamp_ns, float(status.progress))
                while len(self.followed) > _KEPT_PLANS:
                    self.followed.pop(next(iter(self.followed)))
            self.records.serial_number = status.serial_number
            self.records.timing_doubt = find_timing_doubt(status) or self.records.timing_doubt
            self._record("arm_driver/status", status, stamp_ns)

    def _take_estimate(self, message: EstimateMessage) -> None:
        try:
            estimate = estimate_from_message(message)
        except SysidError as error:
            self._node.get_logger().error(f"estimator/estimate: {error}", throttle_duration_sec=5.0)
            return
        stamp_ns = stamp_from_message(message.header.stamp)
        with self._lock:
            if estimate is None:
                return
            if self._key is not None and not is_genuine(message, self._key):
                estimate = replace(estimate, origin=("", 0))  # unsigned
            self._last_received = estimate, message
            if stamp_ns <= self._past_until_ns:
                return
            if other := self._stated.find_other(message):
                self.estimate_fault = (
                    f"estimator/estimate counts on {other}, which no goal has stated: did another client reset it?"
                )
                self._node.get_logger().error(self.estimate_fault, throttle_duration_sec=5.0)
                return
            self.estimate, self._estimate_message = estimate, message
            if self._is_recording:
                self.records.estimates.append((stamp_ns, estimate))
            self._record("estimator/estimate", message, stamp_ns)
            if self._pictures is not None:
                self._pictures.on_estimate(estimate, stamp_ns)

    def _take_truth(self, message: SimulationTruth) -> None:
        try:
            truth = truth_from_message(message)
        except SysidError as error:
            self._node.get_logger().error(f"arm_driver/truth: {error}", throttle_duration_sec=5.0)
            return
        with self._lock:
            self.records.truth = truth
            self._keep("arm_driver/truth", message)

    def _take_plan(self, message: CertifiedTrajectory) -> None:
        with self._lock:
            self._keep("safe_planner/plan", message)
            if self._pictures is None:
                return
            try:
                plan = certified_plan_from_message(message, self._robot.joint_names)
            except SysidError as error:
                self._node.get_logger().error(f"safe_planner/plan: {error}", throttle_duration_sec=5.0)
                return
            self._pictures.on_plan(plan, self._now_ns)

    def _take_description(self, message: String) -> None:
        with self._lock:
            self._keep("robot_description", message)

    def _take_scene(self, message: SceneMessage) -> None:
        before = self._has_scene, self.scene and self.scene.hash(), self._scene_fault
        fault = None if message.is_known else message.fault
        try:
            self.scene = scene_from_message(message, self._robot.n) if message.is_known else None
        except SysidError as error:
            self.scene, fault = None, f"the scene cannot be used: {error}"
            self._node.get_logger().error(f"safe_planner/scene: {error}", throttle_duration_sec=5.0)
        self._has_scene, self._scene_fault = True, fault
        if before == (True, self.scene and self.scene.hash(), fault):
            return  # planners repeat it
        with self._lock:
            self._keep("safe_planner/scene", message)
            if self._pictures is not None:
                self._pictures.on_scene(self.scene, fault, self._now_ns)

    def _take_control_law(self, message: ControlLaw) -> None:
        try:
            self.control_law = RobustSettings.of_law(control_law_from_message(message))
        except SysidError as error:
            self.control_law = None
            self._node.get_logger().warning(f"arm_driver/control_law: {error}", throttle_duration_sec=5.0)

    def _take_joint_states(self) -> None:
        # For the recording alone, so they stay as they came; some arms send a thousand per second.
        messages = self._joint_states.take()
        with self._lock:
            if self._recorder is not None:
                topic = self._node.resolve_topic_name("joint_states")
                for message in messages:
                    self._recorder.write(topic, "sensor_msgs/msg/JointState", message, self._now_ns)

    def _keep(self, topic: str, message: Any) -> None:
        self._latched[topic] = message
        self._record(topic, message, self._now_ns)

    @property
    def _now_ns(self) -> int:
        """Time of the loop's clock, or of this machine's before the first sample [ns]."""
        return self.sample_stamp_ns or time.time_ns()

    def _record(self, topic: str, message: Any, stamp_ns: int) -> None:
        kind = type(message)
        self._write(topic, f"{kind.__module__.split('.')[0]}/msg/{kind.__name__}", message, stamp_ns)

    def _write(self, topic: str, type_name: str, message: Any, stamp_ns: int) -> None:
        if self._recorder is not None:
            self._recorder.write(self._node.resolve_topic_name(topic), type_name, contents_of(message), stamp_ns)
