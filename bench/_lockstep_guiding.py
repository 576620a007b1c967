"""A simulated arm that a simulated person guides by its tool, cycle by cycle and without a clock.

What the person feels depends on the model that the external wrench is estimated with: its errors push the arm, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopSample
from sysid_ros.drivers.mujoco.arm import MujocoArm

Array = NDArray[np.float64]


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
        sample: What the loop measured and commanded; None where it had no answer of the arm.
    """

    tool: pin.SE3
    hand: Array
    sample: LoopSample | None


class LockstepGuiding:
    """Runs a loop that guides, with a hand at the tool of its simulated arm.

    Args:
        loop: The loop of a :class:`MujocoArm`, guiding.
        arm: That arm.
    """

    def __init__(self, loop: ControlLoop, arm: MujocoArm):
        self._loop, self._arm = loop, arm
        self._model, self._data = loop.robot.pin_model, loop.robot.pin_model.createData()
        self._frame = self._model.getFrameId(loop.robot.tool_frame)

    def tool(self) -> tuple[pin.SE3, Array]:
        """Return the true place of the tool and its twist in world axes, (6,)."""
        place, twist, _ = self._look()
        return place, twist

    def step(self, hand: Callable[[pin.SE3, Array], Array] | None = None) -> GuidedCycle:
        """Run one cycle.

        Args:
            hand: Maps place and twist of the tool to the wrench of the hand; None for no hand.
        """
        place, twist, jacobian = self._look()
        wrench = np.zeros(6) if hand is None else hand(place, twist)
        self._arm.push(jacobian.T @ wrench)
        self._loop.heartbeat()
        return GuidedCycle(place, wrench, self._loop.step())

    def _look(self) -> tuple[pin.SE3, Array, Array]:
        """Return the true place of the tool, its twist and its Jacobian (6, n), in world axes."""
        truth, world = self._arm.truth(), pin.ReferenceFrame.LOCAL_WORLD_ALIGNED
        jacobian = np.array(pin.computeFrameJacobian(self._model, self._data, truth.q, self._frame, world))
        return self._data.oMf[self._frame].copy(), np.asarray(jacobian @ truth.v), jacobian


def _limited(vector: Array, largest: float) -> Array:
    return vector * min(1.0, largest / max(float(np.linalg.norm(vector)), largest))
