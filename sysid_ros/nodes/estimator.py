"""Node ``estimator``: sample batches in, an estimate with guaranteed bounds out."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.node import Node

from sysid_msgs.msg import IdentifiabilityReport, SampleBatch
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.srv import ResetEstimator
from sysid_ros.adapters.estimator import ContactTopics, EstimatorParameters
from sysid_ros.core.certification.authentication import key_from_environment
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.contact.monitor import ContactMonitor
from sysid_ros.core.estimation.calibration import with_stated_mass
from sysid_ros.core.estimation.parameters.bounds import report_combinations
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import PAYLOAD
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.authentication import is_genuine, sign
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.conversions.identifiability import report_to_message
from sysid_ros.ros.conversions.samples import Samples, samples_from_message
from sysid_ros.ros.node import Level, create_timer, diagnostic_message, spin_main
from sysid_ros.ros.parameters import ParameterServer
from sysid_ros.ros.subscriptions import SourceReceiver

_SAMPLES = "arm_driver/samples"
CLOCK_STEP_NS = 60 * 10**9
"""Samples older than this [ns] are not late: the clock was set back."""


class EstimatorNode(Node):
    """Feeds the samples of ``arm_driver/samples`` to a streaming estimator and publishes its estimate.

    A payload goes to ``~/estimate``, which planners and controllers use. Another body goes to ``~/body_estimate``, and
    identifiable combinations of it, or of all bodies, to ``~/combinations``; ``~/estimate`` is silent then. External
    torques go to ``~/external_torque`` unless all bodies are identified at once.

    Samples count from one publisher only. After a change of the driver the estimate restarts from the prior: the new
    arm may hold something else. Estimates are signed where all their samples are of one session of the driver, and
    signed by it.
    """

    def __init__(self) -> None:
        super().__init__("estimator")
        self._config = ParameterServer(self, EstimatorParameters)
        values = self._config.values
        self._robot = values.load_robot(self.get_logger())
        self._mass = (0.0, 0.0)  # of the payload, as it is stated, and its tolerance [kg]; 0: not known
        self._estimator = StreamingEstimator(self._robot, values.estimator)
        self._contact: ContactTopics | None = None
        if self._estimator.target.body:
            monitor = ContactMonitor(self._robot, self._estimator, values.contact)
            self._contact = ContactTopics(self, self._robot, monitor, values.tf_prefix)
        self._key = key_from_environment()
        # Publisher and session of the samples that the estimate rests on; no session where they are not authentic.
        self._driver: tuple[bytes | None, str] | None = None
        self._payload_epoch: int | None = None
        self._stamp_ns = 0
        self._past_until_ns = 0
        self._has_news = False
        self._next_publish = 0.0
        self._publisher = self.create_publisher(EstimateMessage, "~/estimate", qos.LATCHED)
        self._body_publisher = self.create_publisher(EstimateMessage, "~/body_estimate", qos.LATCHED)
        self._combinations_publisher = self.create_publisher(IdentifiabilityReport, "~/combinations", qos.LATCHED)
        self._diagnostics = self.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
        self._source = SourceReceiver(self, SampleBatch, "arm_driver/samples", self._take_batch, qos.SAMPLES).source
        self.create_service(ResetEstimator, "~/reset", self._reset)
        self._timer = create_timer(self, 1.0 / values.publish_rate, self._publish)
        create_timer(self, 1.0, self._publish_diagnostics)
        self._config.on_change(lambda new: setattr(self._timer, "timer_period_ns", round(1e9 / new.publish_rate)))
        target = self._estimator.target
        what = f"the {target.label}" if target.body else target.label
        self.get_logger().info(f"estimating {what} of {self._robot.name} with method {values.estimator.method}")

    def _take_batch(self, batch: SampleBatch) -> None:
        is_authentic = self._key is None or is_genuine(batch, self._key)
        driver = self._source.bound, batch.session if is_authentic else ""
        if self._driver != driver:
            if self._driver is not None:
                reason = f"samples come from another driver now, {self._source.text}"
                self._restart(reason)
                self._estimator.forget_tare(f"{reason}: it may be another arm, or have other torque offsets")
                self._payload_epoch = None
            if not is_authentic:
                text = f"{_SAMPLES}: not signed with the key of this node, so no motion can rest on the estimate"
                self.get_logger().warning(text)
            self._driver = driver
        try:
            samples = self._leave_out_past(samples_from_message(batch, self._robot.joint_names))
            blocks, faults = samples.blocks()
        except SysidError as error:
            self.get_logger().error(f"{_SAMPLES}: {error}", throttle_duration_sec=5.0)
            return
        if samples.stamps.size and samples.payload_epoch != self._payload_epoch:
            # A reset that leaves out samples of this payload, be it all of them here, has begun with it already.
            if self._payload_epoch is not None and samples.stamps[0] > self._past_until_ns:
                self._restart("the payload was announced to have changed")
            self._payload_epoch = samples.payload_epoch
        for block in blocks:
            faults += self._estimator.add(block)
            if self._contact is not None:
                self._contact.add(block)
            self._stamp_ns = int(block.stamps[-1])
            self._has_news = True
        if faults:
            self.get_logger().warning("; ".join(faults), throttle_duration_sec=1.0)

    def _leave_out_past(self, samples: Samples) -> Samples:
        """Mark as unusable the samples from before the last reset that arrive late."""
        if samples.stamps.size and self._past_until_ns - samples.stamps[-1] > CLOCK_STEP_NS:
            self._past_until_ns = 0  # the clock was set back: these samples are new
        return replace(samples, valid=samples.valid & (samples.stamps > self._past_until_ns))

    def _publish(self) -> None:
        # Samples come first: an estimate between two updates of the bounds takes at most a quarter of the time, so that
        # the queue never fills up.
        if not self._has_news or time.monotonic() < self._next_publish:
            return
        self._has_news = False
        started = time.monotonic()
        estimate = self._estimator.estimate()
        ended = time.monotonic()
        self._next_publish = ended + 3.0 * (ended - started)
        if not estimate.is_consistent:
            self.get_logger().error(estimate.alarm_text, throttle_duration_sec=2.0)
        self._send(estimate)

    def _send(self, estimate: ParameterEstimate) -> None:
        target, is_payload = self._estimator.target, self._config.values.estimator.body == PAYLOAD
        if target.body:
            information = self._estimator.information()
            session = "" if self._driver is None else self._driver[1]
            estimate = replace(estimate, origin=(session, self._payload_epoch or 0))
            message = estimate_to_message(estimate, self._stamp_ns, information)
            message.gripper = self._estimator.settings.gripper
            message.stated_mass, message.stated_mass_tolerance = self._mass
            if self._key is not None and session:
                sign(message, self._key)
            (self._publisher if is_payload else self._body_publisher).publish(message)
        if not is_payload:
            report = report_combinations(target, estimate)
            self._combinations_publisher.publish(report_to_message(report, self._stamp_ns, target.frame))

    def _publish_diagnostics(self) -> None:
        fault = self._source.fault
        state = (Level.OK, f"samples of {self._source.text}") if fault is None else (Level.ERROR, fault)
        values = {"source": self._source.text, "refused batches": self._source.refused}
        self._diagnostics.publish(diagnostic_message(self, "samples", self._robot.name, state, values))

    def _reset(self, request: ResetEstimator.Request, response: ResetEstimator.Response) -> ResetEstimator.Response:
        try:
            self._robot.gripper_state(request.gripper)
            with_stated_mass(self._robot, request.mass, request.mass_tolerance)
            self._source.release_if_silent()
            if request.tare == ResetEstimator.Request.END_TARE:
                self._estimator.end_tare()
        except SysidError as error:
            response.success, response.message = False, str(error)
            return response
        self._restart(request.reason or "asked to", request.gripper, (request.mass, request.mass_tolerance))
        if request.tare == ResetEstimator.Request.BEGIN_TARE:
            self._estimator.begin_tare()
        self._past_until_ns = max(request.until, self._stamp_ns)
        response.success = True
        response.message = "starting again from the prior"
        response.gripper = self._estimator.settings.gripper
        response.tare = "" if self._estimator.tare is None else str(self._estimator.tare)
        response.until = self._past_until_ns
        return response

    def _restart(self, reason: str, gripper: str = "", mass: tuple[float, float] = (0.0, 0.0)) -> None:
        """Restart from the prior; the stated gripper and payload hold until the next restart."""
        values = self._config.values
        settings = replace(values.estimator, gripper=gripper or values.estimator.gripper)
        if settings == self._estimator.settings and mass == self._mass:
            self._estimator.reset(reason)
        else:
            self._mass = mass
            self._estimator = StreamingEstimator(
                with_stated_mass(self._robot, *mass), settings, tare=self._estimator.tare
            )
            if self._contact is not None:
                self._contact.watch(ContactMonitor(self._robot, self._estimator, values.contact))
        if self._contact is not None:
            self._contact.restart()
        self._has_news = False
        state = f"; the gripper is {settings.gripper}" if settings.gripper else ""
        weighed = f"; the payload weighs {mass[0]:g} kg +- {mass[1]:g} kg" if mass[0] else ""
        self.get_logger().info(f"starting again: {reason}{state}{weighed}")


main = partial(spin_main, EstimatorNode)

if __name__ == "__main__":
    sys.exit(main())
