"""What the torque loop asks of a control law."""

from __future__ import annotations

from dataclasses import fields
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.box import Box

Array = NDArray[np.float64]


class Controller(Protocol):
    """A control law of an arm, called once per cycle of the torque loop.

    Attributes:
        law: Its name and settings in words; certificates name the law that their tracking bound is for.
        is_learning: Whether it learns from errors, as by an integral. The loop switches that off where the arm may not
            get the torque that is computed: what is learnt then would act all at once when it does again.
    """

    law: str
    is_learning: bool

    @property
    def blend_left(self) -> float:
        """How long it still changes to the model it was given last [s]; 0 where it uses that one."""

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Computes the torque.

        Args:
            q: Measured positions, (n,) [rad].
            v: Measured velocities, (n,) [rad/s].
            q_d: Desired positions, (n,) [rad].
            v_d: Desired velocities, (n,) [rad/s].
            a_d: Desired accelerations, (n,) [rad/s^2].

        Returns:
            Torque, (n,) [Nm], motor side, not limited.
        """

    def set_model(self, theta_arm: Array, theta_arm_box: Box, payload: Array, payload_box: Box) -> None:
        """Changes the model.

        Args:
            theta_arm: Nominal parameters of the arm, (14 n,).
            theta_arm_box: Box that contains the true ones.
            payload: Nominal payload about the frame of the last joint, (10,).
            payload_box: Box that contains the true one.
        """

    def reset(self) -> None:
        """Forgets everything learnt from past cycles; call it before taking the arm over."""


def describe_law(name: str, settings: object) -> str:
    """A control law with the settings in a dataclass, in words that tell any two of them apart."""
    return f"{name} " + " ".join(f"{entry.name}={getattr(settings, entry.name)!r}" for entry in fields(settings))
