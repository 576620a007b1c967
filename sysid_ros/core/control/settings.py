"""The control law of an arm, and gains and timing of the robust one."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting

Array = NDArray[np.float64]

ROBUST = "robust"
"""Name of the robust control law."""


@dataclass(frozen=True)
class ControlLaw:
    """A control law with its settings.

    Attributes:
        name: Name of the law.
        settings: Its settings by name in alphabetical order, SI units.
    """

    name: str
    settings: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "settings", tuple(sorted(self.settings)))

    @classmethod
    def of(cls, name: str, settings: Any) -> ControlLaw:
        """Describe a law by a dataclass of numbers."""
        return cls(name, tuple((entry.name, float(getattr(settings, entry.name))) for entry in fields(settings)))

    def __str__(self) -> str:
        return " ".join([self.name, *(f"{name}={value!r}" for name, value in self.settings)])


class Controller(Protocol):
    """A control law of an arm, called once per cycle of the torque loop.

    Attributes:
        law: Its name and settings; certificates name the law that their tracking bound is for.
        is_integrating: Whether the integral state follows the errors. The loop switches that off where the arm may not
            receive the computed torque: a state wound up meanwhile would act all at once afterwards.
    """

    law: ControlLaw
    is_integrating: bool

    @property
    def blend_left(self) -> float:
        """Time until the controller uses the model it was given last [s]; 0 where it does."""

    def compute(self, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array) -> Array:
        """Compute the torque.

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
        """Change the model.

        Args:
            theta_arm: Nominal parameters of the arm, (14 n,).
            theta_arm_box: Box that contains the true ones.
            payload: Nominal payload about the frame of the last joint, (10,).
            payload_box: Box that contains the true one.
        """

    def reset(self, balance: Array | None = None) -> None:
        """Reset the state of past cycles; call it before taking the arm over.

        ``balance`` is the measured torque that balances the resting arm now, (n,) [Nm]: a law with an integral state
        begins with it. None if unknown.
        """


@dataclass(frozen=True)
class RobustSettings(Settings, library_only=True):
    """Gains of :class:`RobustController` and the timing its bound is proven for.

    The closed loop of the nominal model has the poles ``-position_gain`` and about ``-integral_gain`` and
    ``-(bandwidth - integral_gain)``, the same for all joints, because the feedback is shaped by the inertia.
    """

    bandwidth: float = setting(200.0, "1/s", lower=1.0, upper=1000.0)
    """c, damping of the sliding variable. Torque chatter is about ``c H`` times the velocity error."""
    position_gain: float = setting(7.0, "1/s", lower=0.1, upper=100.0)
    """K, rate at which the position error follows the sliding variable."""
    integral_gain: float = setting(7.0, "1/s", lower=0.1, upper=100.0)
    """Rate at which the integral state follows constant disturbances."""
    friction_speed: float = setting(0.5, "rad/s", lower=1e-3, upper=10.0)
    """Desired speed from which Coulomb friction is compensated in full; below half of it, where the sign of the true
    velocity is not certain, not at all."""
    blend_time: float = setting(3.0, "s", lower=0.0, upper=60.0)
    """Time in which the controller changes to another model."""
    period: float = setting(1e-3, "s", lower=1e-4, upper=0.02)
    """Sampling period."""
    delay: float = setting(1e-3, "s", lower=0.0, upper=0.02)
    """Longest time from a measurement to the torque computed from it, at most a period; constant, but not known."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delay > self.period:
            raise ParameterOutOfRange("delay [s]", self.delay, f"from 0 to the period, {self.period:g}")

    @property
    def law(self) -> ControlLaw:
        """The control law with these settings."""
        return ControlLaw.of(ROBUST, self)

    @classmethod
    def of_law(cls, law: ControlLaw) -> RobustSettings:
        """Return the settings of a control law.

        Raises:
            ParameterOutOfRange: It is not this law with all its settings, or one of them is out of range.
        """
        wanted = [one.name for one in fields(cls)]
        if law.name != ROBUST or sorted(name for name, _ in law.settings) != sorted(wanted):
            allowed = f"{ROBUST} with {', '.join(wanted)}: no other law has a proven tracking bound"
            raise ParameterOutOfRange("control law", str(law), allowed)
        return cls(**dict(law.settings))

    def friction_share(self, v_d: Array) -> Array:
        """Return the share of Coulomb friction that is compensated at desired velocities [rad/s], from -1 to 1."""
        beyond = v_d - np.minimum(np.maximum(v_d, -0.5 * self.friction_speed), 0.5 * self.friction_speed)
        return np.minimum(np.maximum(2.0 / self.friction_speed * beyond, -1.0), 1.0)
