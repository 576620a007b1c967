"""Monitoring of an arm under another controller: samples as from any other arm, and never a command.

:class:`MonitorLoop` replaces a :class:`sysid_ros.drivers.loop.ControlLoop`: it has the methods that the process of the
loop and its ROS side call, and refuses any that would move the arm.
"""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partialmethod
from typing import NoReturn

import numpy as np

from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.arm import ArmState, Array
from sysid_ros.drivers.loop_types import (
    LoopCode,
    LoopMode,
    LoopModel,
    LoopRefusal,
    LoopSample,
    LoopSettings,
    LoopStatus,
    ModeState,
)
from sysid_ros.drivers.monitors import MeasurementCheck
from sysid_ros.drivers.ros2_control.states import JointStream, StreamedArm
from sysid_ros.drivers.ros2_control.takeover import judge_gravity, measure_rest

ONLY_MONITORED = "the arm is only monitored: this driver commands nothing, another controller moves the arm"
"""Why everything that would move the arm is refused."""
_MONITORING = "monitoring; nothing is commanded"
_WAIT = 0.02
"""Shortest time a cycle waits [s]: no answer is due, so a state may come late."""


class MonitoredArm(StreamedArm):
    """An arm that is only monitored; settings of commands have no effect."""

    _measured_period = 0.0
    _gravity_result = "not done"

    def connect(self) -> None:
        """Receive states for a while; the arm may move. If it rests, its efforts must match the model.

        Raises:
            TakeoverRefused: The states are not as set up, or the efforts of the resting arm contradict its model.
        """
        if self._link is None:
            self._link = self._open_link()
        try:
            self._stream = JointStream(self._robot, self.settings, self._link)
            rest = measure_rest(self._stream, self.settings, self._robot, self._link.states_name)
            self._measured_period = rest.period
            self._gravity_result = judge_gravity(rest, self._robot)
        except Exception:
            self.close()
            raise

    def read(self) -> ArmState:
        """See :meth:`Arm.read`."""
        _, stream = self._require("read()")
        state = stream.next(max(_WAIT, self.settings.cycle_wait))
        if state is None:
            return replace(self._last, ok=False, missed=0)
        share = stream.stamps.missing_share
        if share > self.settings.missing_share:
            state = replace(state, faults=(f"{100.0 * share:.0f} % of the states of the last second are missing",))
        self._last = state
        return state

    @property
    def age(self) -> float:
        """Time since the last state [s]."""
        return float("inf") if self._stream is None else self._stream.age

    def command(self, tau: Array) -> None:
        """Refuse; raises :class:`LoopRefusal`."""
        raise LoopRefusal("command", ONLY_MONITORED)

    def stop(self, reason: str) -> None:
        """Do nothing: this driver never has control of the arm."""

    def health(self) -> dict[str, object]:
        """See :meth:`Arm.health`."""
        if self._link is None or self._stream is None:
            return self._closed_health
        return {
            "connection": "monitoring only, nothing is commanded",
            **self._stream.health(),
            "measured period [s]": self._measured_period or self.period,
            "static gravity check": self._gravity_result,
        }


class MonitorLoop:
    """Turns the states of a monitored arm into samples.

    Attributes:
        now_ns: Time of the last state [ns].
    """

    is_handed_back, is_at_rest = False, True  # this loop never takes the arm over, and never moves it

    def __init__(self, arm: MonitoredArm, robot: RobotModel, settings: LoopSettings | None = None):
        self.arm, self.robot = arm, robot
        self.settings = settings or LoopSettings()
        self._mode = ModeState()
        self._check = MeasurementCheck(robot, self.settings, arm.period)
        self._cycles = self._invalid_cycles = 0
        self.now_ns = 0
        self._model = LoopModel.nominal(robot)
        self._state: ArmState | None = None
        self._is_connected = False

    # What a control loop has, too

    def connect(self) -> None:
        """Begin monitoring.

        Raises:
            LoopRefusal: It is monitoring already.
            ArmError: The states cannot be used.
        """
        if self._is_connected:
            raise LoopRefusal("connect", "the arm is monitored already")
        self.arm.connect()
        self._is_connected = True
        self._check = MeasurementCheck(self.robot, self.settings, self.arm.period)
        self._note(LoopCode.OK, f"{_MONITORING} (static gravity check: {self.arm.health()['static gravity check']})")

    def step(self) -> LoopSample | None:
        """Take one state and return its sample; None where no state came."""
        state = self.arm.read()
        if not state.ok:
            if self.arm.age > self.arm.settings.session_timeout:
                self._judge(f"no joint states for {self.arm.settings.session_timeout:g} s")
            return None
        self._cycles += 1 + state.missed
        fault = self._check.find_fault(state)
        if fault is not None:
            self._invalid_cycles += 1
        else:
            self._state, self.now_ns = state, state.stamp_ns
        fault = fault or self._check.find_effort_fault(state)
        complaints = ", ".join(state.faults) or None
        self._judge(complaints if fault is None else fault.reason)
        is_usable = fault is None and state.is_exact
        nothing = np.full(self.robot.n, np.nan)
        return LoopSample(
            self._cycles, state.stamp_ns, is_usable, state.q, state.v, state.tau, nothing, nothing, nothing, nothing,
            LoopMode.IDLE,
        )  # fmt: skip

    def _refuse(self, request: str, *_: object) -> NoReturn:
        raise LoopRefusal(request, ONLY_MONITORED)

    execute = begin = follow_uncertified = partialmethod(_refuse, "trajectory")
    guide = partialmethod(_refuse, "guiding")
    offer_model = partialmethod(_refuse, "model")

    def boxes_of(self, model: LoopModel | None) -> tuple[Box, Box]:
        """See :meth:`ControlLoop.boxes_of`."""
        return self._model.theta_box, self._model.payload_box

    def brake(self, reason: str, code: LoopCode = LoopCode.BRAKE_REQUESTED) -> None:
        """Do nothing: the arm has to be stopped by its own controller."""

    def set_model(self, model: LoopModel, is_reset: bool = False) -> None:
        """Keep the model for the status; nothing is controlled with it.

        Raises:
            LoopRefusal: It does not fit the arm, or a box is not inside the one in use.
        """
        model.require_fits(self.robot)
        if not is_reset:
            model.require_inside(self._model, self.robot)
        self._model = model

    def heartbeat(self) -> None:
        """Do nothing."""

    def report_late(self, lateness: float) -> None:
        """Do nothing: the arm paces."""

    def release(self, reason: str) -> None:
        """End monitoring."""
        self.arm.close()
        self._state, self._is_connected = None, False
        self._note(self._mode.code, reason)

    def status(self) -> LoopStatus:
        """Return the status of a loop that commands nothing."""
        n, nothing = self.robot.n, np.zeros(self.robot.n)
        return LoopStatus(
            mode=LoopMode.IDLE,
            code=self._mode.code,
            reason=self._mode.reason,
            stamp_ns=self.now_ns,
            cycles=self._cycles,
            invalid_cycles=self._invalid_cycles,
            reference=np.full(n, np.nan) if self._state is None else np.array(self._state.q),
            tracking_error=nothing,
            tracking_error_max=nothing,
            tracking_bound=np.full(n, np.inf),
            model_box_hash=box_hash(self._model.theta_box, self._model.payload_box),
            transitions=tuple(self._mode.transitions),
            law=ControlLaw("none, the arm is only monitored"),
            serial_number=self.arm.serial_number,
        )

    def _judge(self, fault: str | None) -> None:
        if fault is not None and self._mode.code is LoopCode.OK:
            self._note(LoopCode.INVALID_MEASUREMENT, f"monitoring; {fault}")
        elif fault is None and self._mode.code is not LoopCode.OK:
            self._note(LoopCode.OK, _MONITORING)

    def _note(self, code: LoopCode, reason: str) -> None:
        self._mode.change(self.now_ns or time.time_ns(), LoopMode.IDLE, code, reason)
