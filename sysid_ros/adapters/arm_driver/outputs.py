"""From the loop to ROS: samples, joint states, status, diagnostics, truth of a simulated arm, and its online model."""

from __future__ import annotations

import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from numpy.typing import ArrayLike, NDArray
from rclpy.clock import ROSClock
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_msgs.msg import Header, String

from sysid_msgs.msg import ControlLaw, DriverStatus, SampleBatch, SimulationTruth
from sysid_ros.adapters.arm_driver.parameters import ArmDriverParameters
from sysid_ros.core.certification.authentication import AuthenticationKey
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.baselines import OnlineModelSettings, OnlineModelStatus
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import REFUSALS, SLOW
from sysid_ros.drivers.channel import LoopSamples, LoopTiming
from sysid_ros.drivers.gate import Authenticator
from sysid_ros.drivers.loop_types import LoopMode, LoopModel, LoopStatus
from sysid_ros.drivers.modes import Mode
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.drivers.proof import ProofProcess
from sysid_ros.drivers.ros2_control.arm import NO_GUARANTEE
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.authentication import sign
from sysid_ros.ros.conversions.common import message_of, stamp_to_message, to_array
from sysid_ros.ros.conversions.estimate import truth_to_message
from sysid_ros.ros.conversions.plans import control_law_to_message
from sysid_ros.ros.conversions.samples import Samples, joint_state_message, samples_to_message
from sysid_ros.ros.node import Interfaces, Level, diagnostic_message
from sysid_ros.ros.parameters import ParameterServer

_MOVING = (LoopMode.TRACK, LoopMode.BRAKE)


class OnlineModel:
    """Fit a model to measurements in motion, in a thread of its own, and offer each fit to the loop.

    The loop decides by its gate, and goes on without this side: where no fit comes while the arm moves, it returns to
    its nominal model.

    Attributes:
        fault: Why the last samples led to no fit; None if nothing is wrong.
    """

    def __init__(self, robot: RobotModel, loop: LoopProcess, settings: OnlineModelSettings):
        self._robot, self._loop = robot, loop
        self._fitter = settings.make_fitter(robot, _control_model(loop.model()))
        self._epoch: int | None = None
        self._nominal = self._fitter.model.total
        self._worker = ThreadPoolExecutor(1, "online_model")
        self.fault: str | None = None

    def add(self, samples: LoopSamples, epochs: NDArray[np.int64]) -> None:
        """Take N samples of the loop with the numbers of their payloads, (N,); returns at once."""
        if len(samples.block):
            self._worker.submit(self._fit, samples, epochs, self._nominal)

    def note(self, status: OnlineModelStatus) -> None:
        """Take the status of the controller, which has its nominal model."""
        self._nominal = status.nominal

    def close(self) -> None:
        """Fit no more."""
        self._worker.shutdown(wait=True, cancel_futures=True)

    def _fit(self, samples: LoopSamples, epochs: NDArray[np.int64], nominal: NDArray[np.float64]) -> None:
        try:
            if epochs[-1] != self._epoch or not np.array_equal(nominal, self._fitter.model.total):
                self._epoch = int(epochs[-1])
                self._fitter.reset(_control_model(self._loop.model()))
            is_wanted = np.isin(samples.modes, _MOVING) & (epochs == self._epoch)
            fitted = self._fitter.add(samples.block, is_wanted)
            if fitted is not None:
                self._loop.offer_model(fitted)
            self.fault = None
        except SysidError as error:
            self.fault = str(error)


def _control_model(model: LoopModel) -> ControlModel:
    return ControlModel(model.theta, model.theta_box, model.payload, model.payload_box)


def online_model_message(
    node: Node, robot: RobotModel, stamp_ns: int, status: OnlineModelStatus, fault: str | None = None
) -> DiagnosticArray:
    """Report the model in use and why: buffer, R^2 of each joint, gate, and the decision by guaranteed bounds.

    A fault says why there are no fits any more.
    """
    settings, fitted = status.settings, status.model
    values: dict[str, object] = {
        "gate is open": status.is_open,
        "share of the identified model": float(status.share),
        "samples": 0 if fitted is None else fitted.fit.samples,
        "capacity": settings.fit.capacity,
        "buffer is full": fitted is not None and fitted.fit.is_full,
        "least R^2": float(status.least),
    }
    if fitted is not None:
        values |= _by_joint(robot, "R^2 of {}", fitted.fit.determination)
        values["least inertia over nominal"], values["largest inertia over nominal"] = fitted.inertia
        values["allowed ratio of inertia"] = float(settings.gate.inertia_ratio)
        values["better for certain by the parameter boxes"] = fitted.is_better_for_certain
        values |= _by_joint(robot, "torque error at most, identified, {} [Nm]", fitted.error_bound)
        values |= _by_joint(robot, "torque error at most, nominal, {} [Nm]", fitted.nominal_error_bound)
    state = (Level.OK, describe(status)) if fault is None else (Level.ERROR, f"{describe(status)}; {fault}")
    return diagnostic_message(node, "online model", robot.name, state, values, stamp_ns)


def describe(status: OnlineModelStatus) -> str:
    """Return in a sentence which model is used, and why."""
    used = "the identified model" if status.is_open else "the nominal model"
    used = f"{used} is used" if status.share == float(status.is_open) else f"changing to {used}"
    return f"{used}; no bound is proven for it" if status.is_open else f"{used}: {_why_closed(status)}"


def _why_closed(status: OnlineModelStatus) -> str:
    fitted, settings = status.model, status.settings
    if fitted is None:
        return "nothing was measured in motion yet"
    if not fitted.fit.is_full:
        return f"{fitted.fit.samples} of {settings.fit.capacity} samples are in the buffer"
    if status.joints:
        return f"R^2 is below {status.least:.3g} for {', '.join(status.joints)}"
    if not settings.gate.allows_inertia(fitted):
        low, high = fitted.inertia
        return f"the identified inertia is {low:.3g} to {high:.3g} times the nominal one"
    return f"the arm has moved for more than {settings.gate.patience:g} s without a new fit"


def _by_joint(robot: RobotModel, words: str, values: ArrayLike) -> dict[str, object]:
    return {words.format(name): float(value) for name, value in zip(robot.joint_names, np.asarray(values), strict=True)}


class PayloadEpochs:
    """Which payload each sample belongs to, by number; the number rises whenever a change is announced."""

    def __init__(self) -> None:
        self._first_epoch = -1
        self._starts = [0]

    @property
    def present(self) -> int:
        """Number of the present payload."""
        return max(0, self._first_epoch + len(self._starts) - 1)

    def restart(self) -> None:
        """Count samples from the beginning again, with another payload than the last."""
        self._first_epoch, self._starts = self._first_epoch + len(self._starts), [0]

    def begin(self, sequence: int) -> None:
        """Begin the next payload with the sample of this number."""
        self._starts.append(sequence)

    def of(self, sequence: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the number of the payload of each sample, (N,), by the samples' own numbers, (N,)."""
        return self._first_epoch + np.searchsorted(self._starts, sequence, side="right") - 1


def split_samples(samples: LoopSamples, payload_epochs: PayloadEpochs) -> list[Samples]:
    """Cut samples of the loop where cycles are missing and where the payload changed: a batch has one of each."""
    sequence = samples.block.sequence
    epochs = payload_epochs.of(sequence)
    is_cut = (np.diff(sequence) != 1) | (np.diff(epochs) != 0)
    cuts = [0, *(np.flatnonzero(is_cut) + 1), len(sequence)]
    return [
        _part(samples, slice(first, last), int(epochs[first]))
        for first, last in zip(cuts[:-1], cuts[1:], strict=True)
        if first < last
    ]


def _part(samples: LoopSamples, part: slice, epoch: int) -> Samples:
    block = samples.block
    return Samples(
        **{name: getattr(block, name)[part] for name in ("stamps", "sequence", "q", "v", "tau")},
        **{name: getattr(samples, name)[part] for name in ("q_d", "v_d", "a_d", "tau_command")},
        valid=np.ones(block.stamps[part].size, dtype=bool),
        mode=samples.modes[part].astype(np.uint8),
        payload_epoch=epoch,
        dropped=samples.dropped,
    )


@dataclass(frozen=True)
class DrivenArm:
    """The arm that a driver is for.

    Attributes:
        robot: Its model.
        loop: Its torque loop.
        epochs: Which payload its samples belong to.
        config: Parameters of the node.
        prover: Proves plans before they may move it.
        key: Key that certificates must be made with; None without one.
    """

    robot: RobotModel
    loop: LoopProcess
    epochs: PayloadEpochs
    config: ParameterServer[ArmDriverParameters]
    prover: ProofProcess
    key: AuthenticationKey | None

    @property
    def values(self) -> ArmDriverParameters:
        """The parameters as they are now."""
        return self.config.values


LATE_SECONDS = 10.0
"""How far back the share of late cycles looks [s]."""
LATE_LEVELS = ((0.10, Level.ERROR), (0.01, Level.WARN))
"""Shares of late cycles from which on diagnostics warn; below, the loop is well."""


class LateCycles:
    """The share of the latest cycles that came too late, from the counters of the loop."""

    def __init__(self) -> None:
        self._counts: deque[tuple[float, int, int]] = deque()  # time [s], cycles, late cycles

    def note(self, seconds: float, cycles: int, late: int) -> float:
        """Note cycles and late ones so far at a steady time [s]; return the late share of the last `LATE_SECONDS`."""
        if self._counts and cycles < self._counts[-1][1]:  # another loop
            self._counts.clear()
        self._counts.append((seconds, cycles, late))
        while len(self._counts) > 2 and self._counts[1][0] <= seconds - LATE_SECONDS:
            self._counts.popleft()
        _, first, late_before = self._counts[0]
        return (late - late_before) / max(cycles - first, 1)


class ArmOutputs:
    """Publish the measurements and the state of the loop.

    Status and robot description can be published as long as this exists, all else between :meth:`begin` and
    :meth:`end`.
    """

    def __init__(self, node: Node, arm: DrivenArm):
        self._node, self._arm = node, arm
        values = arm.values
        self._lasting, self._passing = Interfaces(node), Interfaces(node)
        self._status = self._lasting.create_publisher(DriverStatus, "~/status", qos.STATUS)
        if values.kind.is_simulated or not values.kind.is_ros2_control:  # else the operators of the arm publish theirs
            description = self._lasting.create_publisher(String, "robot_description", qos.LATCHED)
            description.publish(String(data=arm.robot.urdf))
        self._last_text: str | None = None
        self._online: OnlineModel | None = None
        self._authenticator: Authenticator | None = None
        self._dropped = self._joint_state_ns = 0
        self._late = LateCycles()
        self._told: set[str] = set()  # refusals that were logged already

    @property
    def timing(self) -> int:
        """Guarantee that torques act within one period, a ``TIMING_...`` of the status."""
        if self._arm.values.kind.is_ros2_control:  # over topics, real-time priority of the loop alone means nothing
            return DriverStatus.TIMING_TOPICS
        has_priority = self._arm.loop.scheduling.has_priority
        return DriverStatus.TIMING_REAL_TIME if has_priority else DriverStatus.TIMING_NO_PRIORITY

    def begin(self, authenticator: Authenticator) -> None:
        """Create the interfaces that exist only while the loop runs."""
        self._authenticator = authenticator
        passing, resolve = self._passing, self._node.resolve_topic_name
        self._dropped = self._joint_state_ns = 0
        self._samples = passing.create_publisher(SampleBatch, "~/samples", qos.SAMPLES)
        self._truth = passing.create_publisher(SimulationTruth, "~/truth", qos.LATCHED)
        law, loop = passing.create_publisher(ControlLaw, "~/control_law", qos.LATCHED), self._arm.loop
        status = loop.status()
        law.publish(control_law_to_message(status.law))
        if status.online_model is not None:
            self._online = OnlineModel(self._arm.robot, loop, status.online_model.settings)
            self._online_model = passing.create_publisher(DiagnosticArray, "~/online_model", qos.STATUS)
        self._joint_states = None
        if not self._arm.values.kind.is_ros2_control or self._arm.values.states_topic(resolve) != resolve(
            "joint_states"
        ):
            self._joint_states = passing.create_publisher(JointState, "joint_states", qos.JOINT_STATES)
        self._diagnostics = passing.create_publisher(DiagnosticArray, "/diagnostics", qos.DIAGNOSTICS)
        self.publish_truth()

    def end(self) -> None:
        """Take that back."""
        self._authenticator = None
        if self._online is not None:
            self._online.close()
            self._online = None
        self._passing.destroy()

    def close(self) -> None:
        """Take everything back."""
        self.end()
        self._lasting.destroy()

    def read_status(self) -> LoopStatus | None:
        """Ask the loop how it is; where it does not answer, publish that and return None."""
        values = self._arm.values
        try:
            status = self._arm.loop.status()
        except SysidError as error:
            self._node.get_logger().fatal(str(error), throttle_duration_sec=2.0)
            self.publish_state(DriverStatus.MODE_FAULT, DriverStatus.CODE_INTERNAL, str(error))
            return None
        if values.kind.is_ros2_control and not values.kind.is_monitor:
            return replace(status, reason=f"{status.reason} ({NO_GUARANTEE})")
        return status

    def publish_status(self, status: LoopStatus, scene_hash: str | None) -> None:
        """Publish the status of the loop, and log it when it changes."""
        if status.reason != self._last_text:
            self._last_text = status.reason
            # rclpy wants one call site per severity.
            if status.has_failed:
                self._node.get_logger().error(f"{status.mode.name}: {status.reason}")
            else:
                self._node.get_logger().info(f"{status.mode.name}: {status.reason}")
        message = status_message(status, self._arm.loop.timing())
        message.header.frame_id = self._arm.robot.base_frame
        message.dropped_samples, message.timing = self._dropped, self.timing
        message.scene_hash = scene_hash or ""
        self._publish(message)
        if self._online is not None and status.online_model is not None:
            self._online.note(status.online_model)
            told = (self._node, self._arm.robot, status.stamp_ns, status.online_model, self._online.fault)
            self._online_model.publish(online_model_message(*told))

    def publish_state(self, mode: int, code: int, text: str, is_taking_over: bool = False) -> None:
        """Publish a status without a loop to ask."""
        message = DriverStatus(mode=mode, code=code, text=text, is_taking_over=is_taking_over)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publish(message)

    def _publish(self, message: DriverStatus) -> None:
        message.joint_names = list(self._arm.robot.joint_names)
        message.is_simulated, message.payload_epoch = self._arm.values.kind.is_simulated, self._arm.epochs.present
        if self._authenticator is not None:
            message.session, message.authentication = self._authenticator.session, int(self._authenticator.state)
        self._status.publish(message)

    def publish_samples(self) -> None:
        """Publish the measurements since the last call."""
        samples = self._arm.loop.read_samples()
        self._dropped = samples.dropped
        if self._online is not None:
            self._online.add(samples, self._arm.epochs.of(samples.block.sequence))
        session = "" if self._authenticator is None else self._authenticator.session
        for part in split_samples(samples, self._arm.epochs):
            robot, key = self._arm.robot, self._arm.key
            batch = samples_to_message(replace(part, session=session), robot.joint_names, robot.base_frame)
            if key is not None:
                sign(batch, key)
            self._samples.publish(batch)
        if self._joint_states is None:
            return
        block, period_ns = samples.block, round(1e9 / self._arm.values.joint_state_rate)
        for k in range(len(block)):
            if block.stamps[k] - self._joint_state_ns >= period_ns:
                self._joint_state_ns = int(block.stamps[k])
                stamp_ns = self._to_clock(self._joint_state_ns)
                if stamp_ns is None:  # no time has come on /clock yet
                    continue
                names, state = self._arm.robot.joint_names, (block.q[k], block.v[k], block.tau[k])
                self._joint_states.publish(joint_state_message(stamp_ns, names, *state))

    def _to_clock(self, stamp_ns: int) -> int | None:
        """Return the time of the node's clock for a stamp of the loop [ns], which keeps the time of this computer.

        The two differ with ``use_sim_time``. The samples keep the loop's: the estimator integrates over their spacing.
        None where the clock has no time yet.
        """
        clock = self._node.get_clock()
        is_followed = isinstance(clock, ROSClock) and clock.ros_time_is_active
        if not is_followed or self._arm.values.kind.is_ros2_control:
            return stamp_ns  # the states have stamps of the arm
        now = clock.now().nanoseconds
        return max(now - max(time.time_ns() - stamp_ns, 0), 1) if now else None

    def publish_truth(self) -> None:
        """Publish the payload of a simulated arm."""
        if self._arm.values.kind is Mode.MOCK:
            truth = self._arm.loop.truth()
            frame = self._arm.robot.joint_names[-1]
            self._truth.publish(truth_to_message(truth.payload, truth.stamp_ns, frame, self._arm.epochs.present))

    def publish_diagnostics(self) -> None:
        """Publish the health of loop and connection."""
        status, stamp_ns, values = self.read_status(), None, dict[str, object]()
        state = Level.ERROR, "the loop process does not answer"
        if status is not None:
            values = {**loop_health(status, self._arm.loop.timing()), "scheduling": self._arm.loop.scheduling.text}
            late = self._late.note(time.monotonic(), status.cycles, status.missed_deadlines)
            values |= {f"late cycles in {LATE_SECONDS:g} s [-]": late, **self._arm_health()}
            stamp_ns, state = status.stamp_ns, self.judge(status, late)
        name, address = self._arm.robot.name, self._arm.values.robot_ip
        self._diagnostics.publish(
            diagnostic_message(self._node, "control loop", name, state, values, stamp_ns, address)
        )

    def judge(self, status: LoopStatus, late: float) -> tuple[Level, str]:
        """Return how good or bad the loop is, with its share of late cycles, and why."""
        values, scheduling = self._arm.values, self._arm.loop.scheduling
        if status.has_failed:
            return Level.ERROR, status.reason
        level, text = Level.OK, status.reason
        if not (values.kind.is_simulated or values.kind.is_monitor or scheduling.has_priority):
            level, text = Level.WARN, f"{text}; no real-time priority: {scheduling}"
        for share, found in LATE_LEVELS:
            if late >= share:
                text = f"{text}; {late:.1%} of the cycles of the last {LATE_SECONDS:g} s came late (from {share:.0%})"
                return found, f"{text}: end other programs on this machine, or give the loop real-time priority"
        return level, text

    def _arm_health(self) -> dict[str, object]:
        try:
            health = self._arm.loop.health()
        except SysidError as error:
            return {"connection": str(error)}
        refusals = cast(tuple[str, ...], health.pop(REFUSALS, ()))
        for text in refusals:
            if text not in self._told:
                self._told.add(text)
                self._node.get_logger().warning(f"refused: {text}; more of the kind are only counted, in /diagnostics")
        if SLOW in health and SLOW not in self._told:
            self._told.add(SLOW)
            self._node.get_logger().warning(str(health[SLOW]))
        return {**health, REFUSALS: "; ".join(refusals)} if refusals else health


def status_message(status: LoopStatus, timing: LoopTiming) -> DriverStatus:
    """Convert the status of the loop; mode and code have the same numbers in the message."""
    return message_of(
        DriverStatus,
        status,
        timing,
        header=Header(stamp=stamp_to_message(status.stamp_ns)),
        text=status.reason,
        reference_position=to_array("d", status.reference, np.float64),
    )


def loop_health(status: LoopStatus, timing: LoopTiming) -> dict[str, object]:
    """Return the values for diagnostics of a loop, by name."""
    return {
        "mode": status.mode.name,
        "cycles": status.cycles,
        "missed deadlines": status.missed_deadlines,
        "saturated cycles": status.saturated_cycles,
        "cycles without measurement": status.invalid_cycles,
        "period p99 [s]": timing.period_p99,
        "period max [s]": timing.period_max,
        "compute p99 [s]": timing.compute_p99,
    }
