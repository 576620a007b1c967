"""The online model of the torque loop: fitted beside it from its samples, offered to it, and published on a topic."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray
from numpy.typing import ArrayLike, NDArray
from rclpy.node import Node

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.baselines import OnlineModelSettings, OnlineModelStatus
from sysid_ros.core.control.model import ControlModel
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.channel import LoopSamples
from sysid_ros.drivers.loop_types import LoopMode, LoopModel
from sysid_ros.drivers.process import LoopProcess
from sysid_ros.ros.diagnostics import Level, diagnostic_message, hardware_id_of, name_of

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
    return diagnostic_message(stamp_ns, name_of(node, "online model"), hardware_id_of(node, robot.name), state, values)


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
