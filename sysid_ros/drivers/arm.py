"""The interface of an arm under torque control, hardware or simulation.

The interface fits both ways vendors pace a torque loop. A *controller-paced* arm (KUKA FRI) sends a state at its own
times and expects one answer: ``read`` blocks until the state arrives and ``command`` answers it. A *client-paced* arm
(Kinova Kortex, MuJoCo) answers requests at any time: the loop sleeps until its own deadline, ``read`` returns the
newest state at once and ``command`` is the request whose reply the next ``read`` returns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.common.settings import Settings, setting

Array = NDArray[np.float64]

REFUSALS = "refused"
"""Key of :meth:`Arm.health` for sentences about messages that were not used, one for each kind; tuple of str."""
SLOW = "slow"
"""Key there for why simulated time passes more slowly than real time; str."""


class ArmError(SysidError):
    """The arm cannot do the request."""


class ArmLost(ArmError):
    """The arm no longer obeys: power, session or communication is gone. Nothing further may be commanded."""

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"the arm is lost: {reason}")


@dataclass(frozen=True)
class ControllerPayload:
    """What a controller says that its arm carries."""

    mass: float
    """All that is behind the flange [kg]."""
    com: Array
    """Its centre of gravity in the tool flange's frame, (3,) [m]."""
    inertia: Array | None
    """[Ixx, Iyy, Izz, Ixy, Ixz, Iyz] about it, axes of the flange, (6,) [kg m^2]; None where not reported."""
    speed: float
    """Largest speed of a joint [rad/s]."""

    @property
    def is_at_rest(self) -> bool:
        """Whether no joint is faster than 0.01 rad/s."""
        return self.speed <= 0.01


class Pacing(Enum):
    """The side that starts a cycle."""

    CLIENT = "client"
    CONTROLLER = "controller"


@dataclass(frozen=True)
class ArmState:
    """One measurement of the arm."""

    stamp_ns: int
    """Time of the measurement [ns since the epoch of the arm's clock]."""
    q: Array
    """Measured positions, (n,) [rad], unwrapped."""
    v: Array
    """Measured velocities, (n,) [rad/s]."""
    tau: Array
    """Measured efforts in joint direction (the vendor's sign already applied), (n,) [Nm]."""
    ok: bool = True
    """Whether the values are fresh; if not they repeat the last known ones (a missed cycle)."""
    faults: tuple[str, ...] = ()
    """Faults that the arm reports while it still obeys, in words."""
    missed: int = 0
    """Cycles without a state between this one and the one before [-]."""
    is_exact: bool = True
    """Whether the errors are within the sensor model's; if not, the values are good enough to hold the arm with, but
    not to estimate from."""


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings(Settings):
    """Settings of every connection to a controller: timeouts, and how its arm is taken over."""

    connect_timeout: float = setting(15.0, "s", lower=0.1, upper=50.0)
    """Longest time for each step of taking a real arm over."""
    session_timeout: float = setting(0.1, "s", lower=0.005, upper=10.0)
    """Timeout: time without a message of the controller after which the arm counts as lost."""
    late_limit: float = setting(0.02, "s", lower=0.001, upper=10.0)
    """Time between two fresh states beyond the period at which the arm brakes."""
    wait_time: float = setting(0.0, "s", lower=0.0, upper=10.0)
    """How long a cycle waits for the arm; 0 for two periods, of a Kinova three quarters of one, so that a lost reply
    costs no more than its own cycle. More for an emulated controller, whose time stands still meanwhile."""
    rest_time: float = setting(0.2, "s", lower=0.02, upper=5.0, library_only=True)
    """How long the resting arm is measured before it is taken over."""
    hold_time: float = setting(0.2, "s", lower=0.02, upper=5.0, library_only=True)
    """How long it must stay where it is under torque control before anything else."""
    hold_drift: float = setting(0.02, "rad", lower=1e-4, upper=0.1, library_only=True)
    """How far it may drift meanwhile."""
    probe_torque: float = setting(0.25, "-", lower=0.0, upper=0.5, library_only=True)
    """Largest torque of the test of the commands' sign on the last joint, over its limit; the test ends when that joint
    has moved by 1 mrad. 0 leaves it out."""


class Arm(ABC):
    """An arm under torque control.

    The order of calls is ``connect``, then ``read`` and ``command`` in turn once per cycle, ``stop``, ``close``. After
    ``stop`` the arm holds itself; it can still be read, and ``connect`` takes it over again.

    Attributes:
        joint_names: Names of the n joints, in the order of every array.
        pacing: The side that paces the loop.
        period: Nominal duration of a cycle [s].
        is_simulated: Whether it exists only in the computer; then it has the methods of ``MujocoArm``, too.
        serial_number: Serial number, as stated until the arm itself reports it in ``connect``; empty: unknown.
    """

    joint_names: tuple[str, ...]
    pacing: Pacing
    period: float
    serial_number: str = ""
    is_simulated = False

    @property
    def n(self) -> int:
        """Number of joints."""
        return len(self.joint_names)

    @property
    def late_answers(self) -> int:
        """Commands that left later than a period after the state they answer, where the controller paces the loop."""
        return 0

    @abstractmethod
    def connect(self) -> None:
        """Take control of a resting arm; from now on it follows the commanded torques.

        Raises:
            ArmError: The arm cannot be reached or is not in a state that allows it.
        """

    @abstractmethod
    def read(self) -> ArmState:
        """Return the newest state; wait for it where the controller paces the loop, but never without a timeout.

        Raises:
            ArmError: Before ``connect`` or after ``close``.
            ArmLost: The arm no longer obeys.
        """

    @abstractmethod
    def command(self, tau: Array) -> None:
        """Set the torques until the next command.

        Args:
            tau: Whole joint torques, gravity included, in joint direction, (n,) [Nm]. A driver whose vendor adds
                gravity or friction of its own subtracts them here.

        Raises:
            ArmError: Not connected or stopped, or an entry is not finite.
            ArmLost: The arm no longer obeys.
        """

    def health(self) -> dict[str, object]:
        """Return numbers and words about the connection by name, for diagnostics; may be empty."""
        return {}

    @abstractmethod
    def stop(self, reason: str) -> None:
        """Hand the arm back to its own controller or brakes, which bring and keep it at rest; never raises.

        ``reason`` is for the vendor's log.
        """

    @abstractmethod
    def close(self) -> None:
        """End the connection; stop first where needed. Do nothing on a closed arm."""


def is_all_finite(values: Array) -> bool:
    """Return whether all values, (n,), are finite: a fifth of the time of ``np.isfinite(values).all()``."""
    return math.isfinite(values.dot(values)) or bool(np.isfinite(values).all())


def require_finite_command(tau: Array, joint_names: tuple[str, ...]) -> None:
    """Refuse torques (n,) [Nm] that are not finite, before they are sent to a motor; raises :class:`ArmError`."""
    if not is_all_finite(tau):
        joint = int(np.isfinite(tau).argmin())
        raise ArmError(f"torque command of {joint_names[joint]} is {tau[joint]} Nm; it must be a finite number")


@dataclass(frozen=True)
class Truth:
    """The hidden truth of a simulation: exact time [ns], positions (n,) [rad] and velocities (n,) [rad/s]."""

    theta: Array
    """True parameters of the arm, (14 n,)."""
    payload: Array | None
    """True parameters of the payload about the frame of the last joint, (10,); None for no payload."""
    stamp_ns: int
    q: Array
    v: Array


@dataclass(frozen=True)
class InjectedFaults(Settings):
    """Faults to inject; none by default."""

    drop_cycles: int = setting(0, "-", lower=0, upper=10**6)
    """Next cycles without a fresh state; 0 before it is repeated."""
    drop_probability: float = setting(0.0, "-", lower=0.0, upper=1.0)
    """Probability that a cycle has no fresh state."""
    stuck_encoders: tuple[str, ...] = setting(())
    """Joints whose position freezes; their velocity, derived from it, reads zero."""
    nan_torques: tuple[str, ...] = setting(())
    """Joints whose effort is not a number."""
    nan_positions: tuple[str, ...] = setting((), library_only=True)
    """Joints whose position is not a number."""
    command_delay: int = setting(0, "cycles", lower=0, upper=1000)
    """How late commands come."""
    power_loss: bool = setting(False)
    """Power fails: brakes engage, the arm is lost until it is connected again."""

    def require_joints(self, joint_names: Sequence[str]) -> None:
        """Refuse a fault of a joint that the arm does not have; raises :class:`ParameterOutOfRange`."""
        for name in (*self.stuck_encoders, *self.nan_torques, *self.nan_positions):
            if name not in joint_names:
                raise ParameterOutOfRange("joint", name, f"one of {', '.join(joint_names)}")
