"""The arm, the planners and the estimator of the identification procedure, over topics and services."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node
from rclpy.serialization import serialize_message
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from sysid_msgs.msg import DriverStatus, SampleBatch, SimulationTruth
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.srv import ApplyEstimate, CertifyTrajectory, ExecuteTrajectory, PlanExcitation, ResetEstimator
from sysid_ros.core.errors import SysidError
from sysid_ros.core.estimation.estimate import ParameterEstimate
from sysid_ros.core.identification import (
    IdentificationErrorCode,
    IdentificationFailed,
    MotionState,
    PlannedMotion,
)
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.certificate import Certificate
from sysid_ros.core.planning.trajectory import Trajectory
from sysid_ros.export.recording import RecordingWriter
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import (
    Samples,
    certificate_from_message,
    certified_to_message,
    estimate_from_message,
    estimate_to_message,
    information_from_message,
    joint_vector_from_message,
    samples_from_message,
    stamp_from_message,
    trajectory_from_message,
    trajectory_to_message,
    truth_from_message,
)
from sysid_ros.ros.waiting import ServiceTimeout, ServiceUnavailable, call_service, no_messages, wait_until

if TYPE_CHECKING:
    from sysid_ros.nodes.identification import IdentificationParameters

START_TIMEOUT = 1.0
"""How long after the acceptance of a trajectory its start must show in the driver's status [s]."""
SAMPLE_SILENCE = 1.0
"""Without samples for this long the arm counts as silent [s]."""
LATEST_WINDOWS = 0.5
"""An estimate covers the data when it is at most this much older than the newest sample wanted [s]."""


@dataclass
class Records:
    """What one goal has seen, for its files.

    Attributes:
        samples: Sample batches in order.
        estimates: (Stamp of the last sample used [ns], estimate), in order.
        motions: (Stamp of the start [ns], trajectory, condition number, certificate), in order.
        information: Gram matrix of the windows, (10, 10).
        truth: True payload of a simulated arm, (10,), None on hardware.
        timing: How long each part took [s].
    """

    samples: list[Samples] = field(default_factory=list)
    estimates: list[tuple[int, ParameterEstimate]] = field(default_factory=list)
    motions: list[tuple[int, Trajectory, float, Certificate]] = field(default_factory=list)
    information: NDArray[np.float64] = field(default_factory=lambda: np.zeros((10, 10)))
    truth: NDArray[np.float64] | None = None
    timing: dict[str, float] = field(default_factory=dict)


class RosBackend:
    """Implements :class:`sysid_ros.core.identification.IdentificationBackend` with the nodes of this package.

    The subscriptions run in the node's executor; everything else is called from the thread of a goal.

    Args:
        node: The node it belongs to.
        robot: The robot.
    """

    def __init__(self, node: Node, robot: RobotModel):
        self._node = node
        self._robot = robot
        self._lock = threading.Lock()
        self._parameters: IdentificationParameters | None = None
        self._seed = 0
        self._is_recording = False
        self._records = Records()
        self._status: DriverStatus | None = None
        self._status_time = -np.inf
        self._sample_stamp_ns = 0
        self._sample_time = -np.inf
        self._estimate: ParameterEstimate | None = None
        self._estimate_message: EstimateMessage | None = None
        self._ignore_until_ns = 0
        self._model_estimate = EstimateMessage()
        self._model_box_hash = ""
        self._plan_hash = ""
        self._plan_started = False
        self._plan_time = 0.0
        self._recorder: RecordingWriter | None = None
        node.create_subscription(SampleBatch, "arm_driver/samples", self._take_samples, qos.SAMPLES)
        node.create_subscription(DriverStatus, "arm_driver/status", self._take_status, qos.STATUS)
        node.create_subscription(EstimateMessage, "estimator/estimate", self._take_estimate, qos.LATCHED)
        node.create_subscription(SimulationTruth, "arm_driver/truth", self._take_truth, qos.LATCHED)
        node.create_subscription(JointState, "joint_states", self._take_joint_state, qos.JOINT_STATES_SUBSCRIBER)
        self._plan_client = node.create_client(PlanExcitation, "excitation_planner/plan")
        self._certify_client = node.create_client(CertifyTrajectory, "safe_planner/certify")
        self._execute_client = node.create_client(ExecuteTrajectory, "arm_driver/execute")
        self._brake_client = node.create_client(Trigger, "arm_driver/brake")
        self._apply_client = node.create_client(ApplyEstimate, "arm_driver/set_model")
        self._reset_client = node.create_client(ResetEstimator, "estimator/reset")

    # Around a goal

    def begin(self, parameters: IdentificationParameters, seed: int, recorder: RecordingWriter | None = None) -> None:
        """Starts a goal: forgets what the last one recorded.

        Args:
            parameters: Parameters of the node.
            seed: Seed of the excitation search.
            recorder: Writes every message of the goal to a file, None for none.
        """
        with self._lock:
            truth = self._records.truth
            self._records = Records(truth=truth)
            self._is_recording = True
            self._recorder = recorder
            self._estimate, self._estimate_message = None, None
        self._parameters = parameters
        self._seed = seed

    def finish(self) -> None:
        """Ends a goal: nothing more is recorded."""
        with self._lock:
            self._is_recording = False
            recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        try:
            recorder.close()
        except SysidError as error:
            self._node.get_logger().error(str(error))

    def records(self) -> Records:
        """What the goal has seen so far."""
        self._records.information = self.information()
        return self._records

    def apply_estimate(self, estimate: ParameterEstimate) -> None:
        """Gives the payload as it is known now to the controller, and from then on to the planners.

        Whoever plans and certifies must use the box the controller uses. A refusal is a warning: all go on with the
        wider box they have.
        """
        message = estimate_to_message(estimate, self.estimate_stamp_ns)
        response = self._call(
            self._apply_client, ApplyEstimate.Request(estimate=message), IdentificationErrorCode.DRIVER_NOT_READY
        )
        if not response.success:
            self._node.get_logger().warning(f"the controller keeps its model: {response.message}")
            return
        self._model_estimate, self._model_box_hash = message, response.model_box_hash
        self._wait_for_hold()

    @property
    def estimate_stamp_ns(self) -> int:
        """Stamp of the last sample the latest estimate uses [ns]."""
        message = self._estimate_message
        return stamp_from_message(message.header.stamp) if message is not None else 0

    @property
    def motion_time(self) -> float:
        """How long the arm has moved for this goal [s]."""
        return sum(motion[1].duration for motion in self._records.motions)

    # IdentificationBackend

    def check_ready(self) -> None:
        """See :class:`IdentificationBackend`."""
        timeout = self._parameters.service_timeout
        if not wait_until(lambda: self._status is not None, timeout):
            error = no_messages(self._node, "arm_driver/status", "driver status", timeout, qos.STATUS)
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, str(error))
        if not wait_until(self._samples_arrive, timeout):
            error = no_messages(self._node, "arm_driver/samples", "samples", timeout, qos.SAMPLES)
            raise IdentificationFailed(IdentificationErrorCode.NO_SAMPLES, str(error))
        self._wait_for_hold()

    def reset_estimate(self, reason: str) -> None:
        """See :class:`IdentificationBackend`."""
        # The payload may be another one than the last time: the controller must not trust what it was told of that.
        response = self._call(self._apply_client, ApplyEstimate.Request(), IdentificationErrorCode.DRIVER_NOT_READY)
        if not response.success:
            raise IdentificationFailed(IdentificationErrorCode.DRIVER_NOT_READY, response.message)
        self._model_estimate, self._model_box_hash = EstimateMessage(), response.model_box_hash
        self._wait_for_hold()
        with self._lock:
            self._ignore_until_ns = self._sample_stamp_ns
            self._estimate, self._estimate_message = None, None
        request = ResetEstimator.Request(reason=reason, reset_bounds=True)
        response = self._call(self._reset_client, request, IdentificationErrorCode.TIMEOUT)
        if not response.success:
            raise IdentificationFailed(IdentificationErrorCode.INTERNAL, f"estimator: {response.message}")

    def plan(self, index: int, duration: float, information: NDArray[np.float64]) -> PlannedMotion:
        """See :class:`IdentificationBackend`."""
        request = PlanExcitation.Request(
            joint_names=list(self._robot.joint_names),
            start_position=[float(value) for value in self._reference_position()],
            duration=duration,
            information=information.reshape(100),
            seed=self._seed + index,
        )
        if index > 0 and self._parameters.apply_estimate:
            self.apply_estimate(self._estimate)
        request.estimate = self._model_estimate
        started = time.monotonic()
        response = self._call(
            self._plan_client, request, IdentificationErrorCode.PLAN_FAILED, self._parameters.planning_timeout
        )
        self._records.timing[f"planning {index + 1}"] = time.monotonic() - started
        if not response.success:
            raise IdentificationFailed(IdentificationErrorCode.PLAN_FAILED, response.message)
        trajectory = self._checked(
            lambda: trajectory_from_message(response.trajectory, self._robot.joint_names),
            IdentificationErrorCode.PLAN_FAILED,
        )
        return PlannedMotion(trajectory, float(response.condition_number))

    def certify(self, motion: PlannedMotion) -> Certificate:
        """See :class:`IdentificationBackend`."""
        refused = IdentificationErrorCode.CERTIFICATE_REFUSED
        request = CertifyTrajectory.Request(
            trajectory=trajectory_to_message(motion.trajectory, self._robot.joint_names, time.time_ns()),
            estimate=self._model_estimate,
        )
        started = time.monotonic()
        response = self._call(self._certify_client, request, refused, self._parameters.planning_timeout)
        self._records.timing[f"certifying {len(self._records.motions) + 1}"] = time.monotonic() - started
        if not response.success:
            raise IdentificationFailed(refused, response.message)
        certificate = self._checked(
            lambda: certificate_from_message(response.certificate, self._robot.joint_names), refused
        )
        if certificate is None:
            raise IdentificationFailed(refused, "the safe planner accepted the trajectory but sent no certificate")
        return certificate

    def execute(self, motion: PlannedMotion, certificate: Certificate) -> None:
        """See :class:`IdentificationBackend`."""
        names = self._robot.joint_names
        request = ExecuteTrajectory.Request(
            plan=certified_to_message(motion.trajectory, certificate, names, time.time_ns())
        )
        self._plan_hash, self._plan_started, self._plan_time = motion.trajectory.hash(), False, time.monotonic()
        response = self._call(self._execute_client, request, IdentificationErrorCode.EXECUTION_FAILED)
        if not response.accepted:
            raise IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, response.message)
        self._plan_time = time.monotonic()
        self._records.motions.append((self._sample_stamp_ns, motion.trajectory, motion.condition_number, certificate))

    def motion_state(self) -> MotionState:
        """See :class:`IdentificationBackend`."""
        status = self._status
        if not self._samples_arrive():
            text = f"no samples on arm_driver/samples for {SAMPLE_SILENCE:g} s while the arm moved"
            return MotionState(False, True, 0.0, text)
        if status.code != DriverStatus.CODE_OK or status.mode in (DriverStatus.MODE_FAULT, DriverStatus.MODE_IDLE):
            return MotionState(status.mode == DriverStatus.MODE_BRAKE, True, float(status.progress), status.text)
        self._plan_started |= status.plan_hash == self._plan_hash
        if self._plan_started:
            is_moving = status.plan_hash == self._plan_hash
        else:
            is_moving = time.monotonic() - self._plan_time < START_TIMEOUT
        return MotionState(is_moving, False, float(status.progress) if is_moving else 1.0, status.text)

    def brake(self, reason: str) -> None:
        """See :class:`IdentificationBackend`; returns when the arm rests."""
        self._node.get_logger().warning(f"braking: {reason}")
        try:
            call_service(self._node, self._brake_client, Trigger.Request(), self._parameters.service_timeout)
        except SysidError as error:
            self._node.get_logger().error(f"the brake could not be asked for ({error}); the driver brakes by itself")
        asked = time.monotonic()
        wait_until(lambda: self._status_time > asked and not self._is_moving(), self._parameters.service_timeout)

    def estimate(self) -> ParameterEstimate | None:
        """See :class:`IdentificationBackend`."""
        return self._estimate

    def information(self) -> NDArray[np.float64]:
        """See :class:`IdentificationBackend`."""
        message = self._estimate_message
        return np.zeros((10, 10)) if message is None else information_from_message(message)

    def settle(self, duration: float) -> None:
        """See :class:`IdentificationBackend`."""
        self.wait(duration)
        wanted = self._sample_stamp_ns - round(LATEST_WINDOWS * 1e9)
        if not wait_until(lambda: self.estimate_stamp_ns >= wanted, self._parameters.service_timeout):
            error = no_messages(
                self._node, "estimator/estimate", "new estimate", self._parameters.service_timeout, qos.LATCHED
            )
            raise IdentificationFailed(IdentificationErrorCode.TIMEOUT, str(error))

    def wait(self, duration: float) -> None:
        """See :class:`IdentificationBackend`."""
        time.sleep(duration)

    # Helpers

    def _call(self, client: Any, request: Any, code: IdentificationErrorCode, seconds: float | None = None) -> Any:
        timeout = self._parameters.service_timeout if seconds is None else seconds
        try:
            return call_service(self._node, client, request, timeout)
        except ServiceTimeout as error:
            raise IdentificationFailed(IdentificationErrorCode.TIMEOUT, str(error)) from error
        except ServiceUnavailable as error:
            raise IdentificationFailed(code, str(error)) from error

    @staticmethod
    def _checked(convert: Callable[[], Any], code: IdentificationErrorCode) -> Any:
        try:
            return convert()
        except SysidError as error:
            raise IdentificationFailed(code, str(error)) from error

    def _reference_position(self) -> NDArray[np.float64]:
        status = self._status
        return joint_vector_from_message(
            "DriverStatus", "reference_position", status.joint_names, status.reference_position, self._robot.joint_names
        )

    def _wait_for_hold(self) -> None:
        if not wait_until(self._is_holding, self._parameters.service_timeout):
            raise IdentificationFailed(
                IdentificationErrorCode.DRIVER_NOT_READY,
                f"the arm must hold its position, but the driver says: {self._status.text}",
            )

    def _samples_arrive(self) -> bool:
        return time.monotonic() - self._sample_time < SAMPLE_SILENCE

    def _is_holding(self) -> bool:
        status = self._status
        has_model = self._model_box_hash in ("", status.model_box_hash)
        return status.mode == DriverStatus.MODE_HOLD and not status.is_taking_over and has_model

    def _is_moving(self) -> bool:
        return self._status.mode in (DriverStatus.MODE_TRACK, DriverStatus.MODE_BRAKE)

    # Subscriptions

    def _take_samples(self, batch: SampleBatch) -> None:
        try:
            samples = samples_from_message(batch, self._robot.joint_names)
        except SysidError as error:
            self._node.get_logger().error(f"arm_driver/samples: {error}", throttle_duration_sec=5.0)
            return
        with self._lock:
            self._sample_stamp_ns, self._sample_time = int(samples.stamps[-1]), time.monotonic()
            if self._is_recording:
                self._records.samples.append(samples)
            self._record("arm_driver/samples", batch, self._sample_stamp_ns)

    def _take_status(self, status: DriverStatus) -> None:
        with self._lock:
            self._status, self._status_time = status, time.monotonic()
            self._record("arm_driver/status", status, stamp_from_message(status.header.stamp))

    def _take_estimate(self, message: EstimateMessage) -> None:
        try:
            estimate = estimate_from_message(message)
        except SysidError as error:
            self._node.get_logger().error(f"estimator/estimate: {error}", throttle_duration_sec=5.0)
            return
        stamp_ns = stamp_from_message(message.header.stamp)
        with self._lock:
            if estimate is None or stamp_ns <= self._ignore_until_ns:
                return
            self._estimate, self._estimate_message = estimate, message
            if self._is_recording:
                self._records.estimates.append((stamp_ns, estimate))
            self._record("estimator/estimate", message, stamp_ns)

    def _take_truth(self, message: SimulationTruth) -> None:
        self._records.truth = truth_from_message(message)

    def _take_joint_state(self, message: JointState) -> None:
        with self._lock:
            self._record("joint_states", message, stamp_from_message(message.header.stamp))

    def _record(self, topic: str, message: Any, stamp_ns: int) -> None:
        if self._recorder is not None:
            kind = type(message)
            type_name = f"{kind.__module__.split('.')[0]}/msg/{kind.__name__}"
            self._recorder.write(self._node.resolve_topic_name(topic), type_name, serialize_message(message), stamp_ns)
