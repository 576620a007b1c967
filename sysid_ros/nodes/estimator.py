"""Node ``estimator``: sample batches in, an estimate with guaranteed bounds out."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, fields, replace

from rclpy.node import Node

from sysid_msgs.msg import IdentifiabilityReport, SampleBatch
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_msgs.srv import ResetEstimator
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.parameters.bounds import report_combinations
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import (
    ERROR_TERMS,
    METHODS,
    PAYLOAD,
    QUADRATURES,
    TARGETS,
    EstimatorSettings,
)
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.ros import qos
from sysid_ros.ros.conversions import Samples, estimate_to_message, report_to_message, samples_from_message
from sysid_ros.ros.node import spin_main
from sysid_ros.ros.parameters import ParameterServer, parameter
from sysid_ros.ros.robot import RobotParameters

_DEFAULTS = EstimatorSettings()
CLOCK_STEP_NS = 60 * 10**9
"""Samples older than this [ns] are not late: the clock was set back."""


@dataclass(frozen=True)
class EstimatorParameters(RobotParameters):
    """Parameters of the node ``estimator``; all but rate and robot are those of ``EstimatorSettings``."""

    publish_rate: float = parameter(
        2.0, "Hz", "How often the estimate is renewed while data arrive", lower=0.1, upper=50.0
    )
    rest_interval: float = parameter(
        _DEFAULTS.rest_interval, "s", "While the arm rests, one window in this time counts; 0 takes all of them",
        lower=0.0, upper=60.0, read_only=True,
    )  # fmt: skip
    body: str = parameter(
        _DEFAULTS.body, "",
        "Which body is identified: payload (the last one), the name of a joint or link, or all (combinations of the "
        "parameters of all bodies)", read_only=True,
    )  # fmt: skip
    target: str = parameter(
        _DEFAULTS.target, "", "Whether what the body carries is identified, or body and load together",
        choices=TARGETS, read_only=True,
    )  # fmt: skip
    body_mass: float = parameter(
        _DEFAULTS.body_mass, "kg", "Largest mass of an object on a body given by name", lower=1e-3, upper=1000.0,
        read_only=True,
    )  # fmt: skip
    body_reach: float = parameter(
        _DEFAULTS.body_reach, "m", "That object lies within this distance of the origin of the joint's frame",
        lower=1e-3, upper=10.0, read_only=True,
    )  # fmt: skip
    payload_in_hand: bool = parameter(
        _DEFAULTS.payload_in_hand,
        "",
        "Whether the hand may hold a payload of the prior while another body or all are identified",
        read_only=True,
    )
    friction_range: float = parameter(
        _DEFAULTS.friction_range, "-",
        "0: friction lies in the box of the robot; above: it is estimated too, up to this multiple of its box",
        lower=0.0, upper=100.0, read_only=True,
    )  # fmt: skip
    method: str = parameter(_DEFAULTS.method, "", "How bounds are computed", choices=METHODS, read_only=True)
    window_duration: float = parameter(
        _DEFAULTS.window_duration, "s", "Length of a momentum window", lower=0.005, upper=5.0, read_only=True
    )
    quadrature: str = parameter(
        _DEFAULTS.quadrature, "", "Rule for the integrals over a window", choices=QUADRATURES, read_only=True
    )
    error_terms: tuple[str, ...] = parameter(
        ERROR_TERMS, "", "Terms of the error budget that count; leaving one out voids the guarantee",
        choices=ERROR_TERMS, read_only=True,
    )  # fmt: skip
    gravity_cone: float = parameter(
        _DEFAULTS.gravity_cone, "rad", "Half angle of the cone that holds the true direction of gravity",
        lower=0.0, upper=0.2, read_only=True,
    )  # fmt: skip
    torque_lag: float = parameter(
        _DEFAULTS.torque_lag, "s", "Known lag of the torque signal behind position and velocity",
        lower=0.0, upper=0.2, read_only=True,
    )  # fmt: skip
    torque_lag_tolerance: float = parameter(
        _DEFAULTS.torque_lag_tolerance, "s", "Largest error of torque_lag", lower=0.0, upper=0.05, read_only=True
    )
    torque_offset: float = parameter(
        _DEFAULTS.torque_offset, "Nm", "Half width of an unknown constant offset of each torque signal",
        lower=0.0, upper=50.0, read_only=True,
    )  # fmt: skip
    stiction_speed: float = parameter(
        _DEFAULTS.stiction_speed, "rad/s", "Below this speed the Coulomb torque may be anything between -F_c and F_c",
        lower=0.0, upper=0.5, read_only=True,
    )  # fmt: skip
    acceleration_factor: float = parameter(
        _DEFAULTS.acceleration_factor, "-", "The true acceleration never exceeds this multiple of the planning limit",
        lower=0.1, upper=100.0, read_only=True,
    )  # fmt: skip
    acceleration_change: float = parameter(
        _DEFAULTS.acceleration_change, "-",
        "Between two samples the true acceleration changes by at most this multiple of the planning limit",
        lower=0.0, upper=100.0, read_only=True,
    )  # fmt: skip
    update_windows: int = parameter(
        _DEFAULTS.update_windows, "windows", "Bounds are intersected with the earlier ones after this many windows",
        lower=1, upper=1000, read_only=True,
    )  # fmt: skip
    max_windows: int = parameter(
        _DEFAULTS.max_windows, "windows", "Older windows are compacted beyond this many", lower=20, upper=100000,
        read_only=True,
    )  # fmt: skip
    reweightings: int = parameter(
        _DEFAULTS.reweightings, "-", "Steps from the least-squares left inverse to the one with the narrowest bounds",
        lower=0, upper=100, read_only=True,
    )  # fmt: skip
    bound_tolerance: float = parameter(
        _DEFAULTS.bound_tolerance, "-", "How far set_membership may be from the smallest box, relative to its width",
        lower=1e-9, upper=0.1, read_only=True,
    )  # fmt: skip
    use_cone: bool = parameter(
        _DEFAULTS.use_cone,
        "",
        "Whether set_membership cuts off bodies that are not physically consistent",
        read_only=True,
    )
    prior_weight: float = parameter(
        _DEFAULTS.prior_weight, "-", "Weight of the nominal payload in the point estimate", lower=0.0, upper=1.0,
        read_only=True,
    )  # fmt: skip
    sensitivity_spacing: float = parameter(
        _DEFAULTS.sensitivity_spacing, "s", "Distance of the samples at which derivatives of the regressors are taken",
        lower=1e-3, upper=1.0, read_only=True,
    )  # fmt: skip
    max_gap: float = parameter(
        _DEFAULTS.max_gap, "s", "Samples further apart than this are not joined", lower=1e-4, upper=1.0, read_only=True
    )
    detect_payload_change: bool = parameter(
        _DEFAULTS.detect_payload_change, "",
        "Whether data that contradict the bounds start a new estimate (true) or raise the alarm (false)",
        read_only=True,
    )  # fmt: skip

    def settings(self) -> EstimatorSettings:
        """The settings of the estimator that these parameters stand for."""
        names = {one.name for one in fields(EstimatorSettings)}
        return EstimatorSettings(**{one.name: getattr(self, one.name) for one in fields(self) if one.name in names})

    def check(self) -> None:
        """Refuses what the estimator itself refuses."""
        super().check()
        try:
            self.settings()
        except ParameterOutOfRange as error:
            raise ParameterOutOfRange(f"parameter '{error.name}'", error.value, error.allowed) from error


class EstimatorNode(Node):
    """Feeds the samples of ``arm_driver/samples`` to a streaming estimator and publishes its estimate.

    A payload goes to ``~/estimate``, which planners and controllers use. Another body goes to ``~/body_estimate``, and
    what joint torques tell of it, or of all bodies, to ``~/combinations``; ``~/estimate`` is silent then.
    """

    def __init__(self) -> None:
        super().__init__("estimator")
        self._config = ParameterServer(self, EstimatorParameters)
        values = self._config.values
        self._robot = values.load_robot(self.get_logger())
        self._estimator = StreamingEstimator(self._robot, values.settings())
        self._payload_epoch: int | None = None
        self._stamp_ns = 0
        self._past_until_ns = 0
        self._has_news = False
        self._next_publish = 0.0
        self._publisher = self.create_publisher(EstimateMessage, "~/estimate", qos.LATCHED)
        self._body_publisher = self.create_publisher(EstimateMessage, "~/body_estimate", qos.LATCHED)
        self._combinations_publisher = self.create_publisher(IdentifiabilityReport, "~/combinations", qos.LATCHED)
        self.create_subscription(SampleBatch, "arm_driver/samples", self._take_batch, qos.SAMPLES)
        self.create_service(ResetEstimator, "~/reset", self._reset)
        self._timer = self.create_timer(1.0 / values.publish_rate, self._publish)
        self._config.on_change(lambda new: self._set_rate(new.publish_rate))
        target = self._estimator.target
        what = f"the {target.label}" if target.body else target.label
        self.get_logger().info(f"estimating {what} of {self._robot.name} with method {values.method}")

    def _set_rate(self, rate: float) -> None:
        self._timer.timer_period_ns = round(1e9 / rate)

    def _take_batch(self, batch: SampleBatch) -> None:
        try:
            samples = self._leave_out_past(samples_from_message(batch, self._robot.joint_names))
            blocks, faults = samples.blocks()
        except SysidError as error:
            self.get_logger().error(f"arm_driver/samples: {error}", throttle_duration_sec=5.0)
            return
        if blocks and samples.payload_epoch != self._payload_epoch:
            if self._payload_epoch is not None:
                self._restart("the payload was announced to have changed")
            self._payload_epoch = samples.payload_epoch
        for block in blocks:
            faults += self._estimator.add(block)
            self._stamp_ns = int(block.stamps[-1])
            self._has_news = True
        if faults:
            self.get_logger().warning("; ".join(faults), throttle_duration_sec=1.0)

    def _leave_out_past(self, samples: Samples) -> Samples:
        """Marks as unusable what belongs to the time before the last reset and was still on its way."""
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
            self.get_logger().error(estimate.alarm, throttle_duration_sec=2.0)
        self._send(estimate)

    def _send(self, estimate: ParameterEstimate) -> None:
        target, is_payload = self._estimator.target, self._config.values.body == PAYLOAD
        if target.body:
            information = self._estimator.information()
            message = estimate_to_message(estimate, self._stamp_ns, information, self._payload_epoch or 0)
            (self._publisher if is_payload else self._body_publisher).publish(message)
        if not is_payload:
            report = report_combinations(target, estimate)
            self._combinations_publisher.publish(report_to_message(report, self._stamp_ns, target.frame))

    def _reset(self, request: ResetEstimator.Request, response: ResetEstimator.Response) -> ResetEstimator.Response:
        self._restart(request.reason or "asked to")
        self._past_until_ns = max(request.until, self._stamp_ns)
        response.success = True
        response.message = "starting again from the prior"
        response.until = self._past_until_ns
        return response

    def _restart(self, reason: str) -> None:
        self._estimator.reset(reason)
        self._has_news = False
        self.get_logger().info(f"starting again: {reason}")


def main(argv: list[str] | None = None) -> int:
    """Runs the node until it is stopped; returns the exit status."""
    return spin_main(EstimatorNode, argv)


if __name__ == "__main__":
    sys.exit(main())
