"""What simulated arms offer beyond the interface: a changeable payload, faults on demand, and the truth."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from sysid_ros.core.common.errors import JointNotFound, ParameterOutOfRange
from sysid_ros.drivers.arm import Arm, Array


@dataclass(frozen=True)
class Truth:
    """What only a simulation knows.

    Attributes:
        theta: True parameters of the arm, (14 n,).
        payload: True parameters of the payload about the frame of the last joint, (10,); None for no payload.
        stamp_ns: Exact time of the state [ns].
        q: Exact positions, (n,) [rad].
        v: Exact velocities, (n,) [rad/s].
    """

    theta: Array
    payload: Array | None
    stamp_ns: int
    q: Array
    v: Array


@dataclass(frozen=True)
class InjectedFaults:
    """Everything that is made to go wrong; the default is nothing.

    Attributes:
        drop_cycles: Next cycles without a fresh state.
        drop_probability: Probability that a cycle has no fresh state [-], 0 to 1.
        stuck_encoders: Names of joints whose position freezes; their velocity, derived from it, reads zero.
        nan_torques: Names of joints whose effort is not a number.
        nan_positions: Names of joints whose position is not a number.
        command_delay: Cycles by which commands come late, 0 to 1000.
        power_loss: Whether the power fails: brakes engage, the arm is lost until it is connected again.
    """

    drop_cycles: int = 0
    drop_probability: float = 0.0
    stuck_encoders: tuple[str, ...] = ()
    nan_torques: tuple[str, ...] = ()
    nan_positions: tuple[str, ...] = ()
    command_delay: int = 0
    power_loss: bool = False

    def __post_init__(self) -> None:
        if self.drop_cycles < 0:
            raise ParameterOutOfRange("drop_cycles", self.drop_cycles, "0 or more")
        if not 0.0 <= self.drop_probability <= 1.0:
            raise ParameterOutOfRange("drop_probability", self.drop_probability, "0 to 1")
        if not 0 <= self.command_delay <= 1000:
            raise ParameterOutOfRange("command_delay [cycles]", self.command_delay, "0 to 1000")

    def require_joints(self, joint_names: Sequence[str]) -> None:
        """Checks the joint names.

        Raises:
            JointNotFound: A fault names a joint the arm does not have.
        """
        for name in (*self.stuck_encoders, *self.nan_torques, *self.nan_positions):
            if name not in joint_names:
                raise JointNotFound(name, joint_names)


class SimulatedArm(Arm):
    """An arm that exists only in the computer."""

    @abstractmethod
    def set_payload(self, payload: Array | None) -> None:
        """Attaches, changes or (None) detaches the payload at once; position and velocity stay.

        Args:
            payload: True parameters about the frame of the last joint, (10,).

        Raises:
            NotPhysicallyConsistent: The last body cannot have such a payload.
        """

    @abstractmethod
    def inject(self, faults: InjectedFaults) -> None:
        """Replaces all injected faults.

        Raises:
            JointNotFound: A fault names a joint the arm does not have.
        """

    @abstractmethod
    def start_clock(self, stamp_ns: int) -> None:
        """Sets the present time of the simulation [ns since the epoch]; before ``connect`` only."""

    @abstractmethod
    def truth(self) -> Truth:
        """The exact parameters and state."""
