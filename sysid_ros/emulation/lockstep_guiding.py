"""A simulated arm that a simulated person guides by its tool, cycle by cycle and without a clock.

What the person feels depends on the model that the external wrench is estimated with: its errors push the arm, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.contact.momentum_observer import MomentumObserver
from sysid_ros.core.control.guiding import GuidedReference, GuidingLaw
from sysid_ros.core.control.settings import Controller
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.drivers.mujoco.arm import MujocoArm

Array = NDArray[np.float64]

_ROTATION_SHARE = 0.01
"""Weight of a moment of 1 Nm beside a force of 1 N in the wrench that explains joint torques best [m^2]."""


@dataclass(frozen=True)
class Hand:
    """A person's hand on the tool: a spring and a damper towards where it wants the tool.

    Attributes:
        stiffness: [N/m].
        damping: [N s/m].
        turning_stiffness: [Nm/rad].
        turning_damping: [Nm s/rad].
        strength: Largest force [N].
        turning_strength: Largest moment [Nm].
    """

    stiffness: float = 500.0
    damping: float = 40.0
    turning_stiffness: float = 8.0
    turning_damping: float = 0.6
    strength: float = 40.0
    turning_strength: float = 4.0

    def wrench(self, wanted: pin.SE3, velocity: Array, tool: pin.SE3, twist: Array) -> Array:
        """Compute force and moment on the tool at its origin, world axes, (6,) [N, Nm].

        Args:
            wanted: Where the hand wants the tool.
            velocity: How fast that moves, (3,) [m/s].
            tool: Where the tool is.
            twist: Its linear and angular velocity, world axes, (6,).
        """
        force = self.stiffness * (wanted.translation - tool.translation) + self.damping * (velocity - twist[:3])
        turn = pin.log3(wanted.rotation @ tool.rotation.T)
        moment = self.turning_stiffness * turn - self.turning_damping * twist[3:]
        return np.concatenate([_limited(force, self.strength), _limited(moment, self.turning_strength)])


@dataclass(frozen=True)
class GuidedCycle:
    """One cycle.

    Attributes:
        tool: True place of the tool.
        hand: True wrench of the hand, (6,) [N, Nm].
        estimate: Estimated wrench, (6,) [N, Nm].
        reference: What the guiding law wants.
    """

    tool: pin.SE3
    hand: Array
    estimate: Array
    reference: GuidedReference


class LockstepGuiding:
    """Runs arm, observer, guiding law and controller in lock-step.

    Args:
        robot: The arm.
        arm: The simulated arm, connected.
        law: The guiding law; started at the arm's posture.
        controller: What follows its reference.
        observer: Estimates the external torques, with the model in question.
    """

    def __init__(
        self,
        robot: RobotModel,
        arm: MujocoArm,
        law: GuidingLaw,
        controller: Controller,
        observer: MomentumObserver,
    ):
        self._arm, self._law, self._controller, self._observer = arm, law, controller, observer
        self._model, self._data = robot.pin_model, robot.pin_model.createData()
        self._frame = robot.pin_model.getFrameId(robot.tool_frame)
        self._weights = np.sqrt(np.repeat([1.0, 1.0 / _ROTATION_SHARE], 3))
        state = arm.read()
        controller.reset()
        observer.reset()
        law.start(state.q)
        self._state = state

    def tool(self) -> tuple[pin.SE3, Array]:
        """Return the true place of the tool and its twist in world axes, (6,)."""
        truth = self._arm.truth()
        jacobian = self._jacobian(truth.q)
        return self._data.oMf[self._frame].copy(), np.asarray(jacobian @ truth.v)

    def step(self, hand: Callable[[pin.SE3, Array], Array] | None = None) -> GuidedCycle:
        """Run one cycle.

        Args:
            hand: Maps place and twist of the tool to the wrench of the hand; None for no hand.
        """
        place, twist = self.tool()
        wrench = np.zeros(6) if hand is None else hand(place, twist)
        self._arm.push(self._jacobian(self._arm.truth().q).T @ wrench)
        state = self._state
        external = self._observer.update(state.q, state.v, state.tau)
        estimate = self._wrench_of(state.q, external)
        reference = self._law.step(estimate)
        self._arm.command(self._controller.compute(state.q, state.v, reference.q, reference.v, reference.a))
        self._state = self._arm.read()
        return GuidedCycle(place, wrench, estimate, reference)

    def _wrench_of(self, q: Array, torque: Array) -> Array:
        """Return the wrench at the tool that explains joint torques best, (6,) [N, Nm]."""
        transposed = self._jacobian(q).T / self._weights
        # Damped, because near singular postures torques say nothing of some directions.
        normal = transposed.T @ transposed + 1e-4 * np.eye(6)
        return np.asarray(np.linalg.solve(normal, transposed.T @ torque) / self._weights)

    def _jacobian(self, q: Array) -> Array:
        world = pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        return np.array(pin.computeFrameJacobian(self._model, self._data, q, self._frame, world))


def _limited(vector: Array, largest: float) -> Array:
    return vector * min(1.0, largest / max(float(np.linalg.norm(vector)), largest))
