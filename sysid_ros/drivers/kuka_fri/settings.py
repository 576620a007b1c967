"""Settings of the FRI client; they have to agree with the application on the controller."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import Settings, setting
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.modes import FRI_PORTS as PORTS
from sysid_ros.drivers.modes import FriVersion


class TorqueSetup(Enum):
    """What the controller adds to the torques it is sent.

    ``OVERLAY``: gravity and Coriolis torques of its own model (KUKA's joint impedance control with zero stiffness and
    damping); the client subtracts the same. ``FULL``: nothing; the client sends the whole joint torque. Some
    controller applications and simulators of other makers are like that; KUKA's controller is not.
    """

    OVERLAY = "overlay"
    FULL = "full"


class PositionSent(Enum):
    """The position sent with the torques.

    With zero stiffness it moves nothing, but a jump stops the arm. ``MEASURED``: the measured one; KUKA's controller
    then switches its friction compensation off, at rest at least. ``OFFSET``: ``position_offset`` beside the measured
    one, at zero too; friction compensation stays on. Friction in the data depends on this choice; link-side torques do
    not.
    """

    MEASURED = "measured"
    OFFSET = "offset"


@dataclass(frozen=True)
class FriSettings(Settings):
    """Settings of the client."""

    version: FriVersion = setting(FriVersion.V1_15)
    """Version of FRI on the controller; 1.14 and 1.16 are as 1.15."""
    robot_ip: str = setting("")
    """Address of the controller; other hosts are ignored. Empty accepts all hosts."""
    port: int = setting(PORTS[0], "-", lower=1024, upper=65535)
    """UDP port of this computer, the one the controller's application names."""
    period: float = setting(0.001, "s", lower=0.001, upper=0.01)
    """Time between two commands, the controller's send period times its receive multiplier; checked. Plans are
    certified for 0.001."""
    setup: TorqueSetup = setting(TorqueSetup.OVERLAY)
    """overlay: the controller compensates gravity and Coriolis torques, as KUKA's does; full: it adds nothing."""
    position: PositionSent = setting(PositionSent.MEASURED)
    """Position sent with torques; with measured KUKA's friction compensation is off, at least at rest, with offset
    on."""
    position_offset: float = setting(0.1, "rad", lower=0.0, upper=0.2, library_only=True)
    """See :class:`PositionSent`; at most a quarter of the joint's range is used."""
    controller_load: Array | None = None
    """Load that is configured on the controller, about the frame of the last joint, (10,); None for none. The
    controller compensates it."""
    connect_timeout: float = setting(15.0, "s", lower=0.1, upper=50.0)
    """Longest time for each step of taking a real arm over."""
    session_timeout: float = setting(0.1, "s", lower=0.005, upper=10.0)
    """Timeout: time without a message of the controller after which the arm counts as lost."""
    late_limit: float = setting(0.02, "s", lower=0.001, upper=10.0)
    """Time between two messages beyond the period at which the arm brakes."""
    rest_time: float = setting(0.2, "s", lower=0.02, upper=5.0, library_only=True)
    """How long the resting arm is measured before it is taken over."""
    hold_time: float = setting(0.2, "s", lower=0.02, upper=5.0, library_only=True)
    """How long it must stay where it is under torque control before anything else."""
    hold_drift: float = setting(0.02, "rad", lower=1e-4, upper=0.1, library_only=True)
    """How far it may drift meanwhile."""
    wait_time: float = setting(0.0, "s", lower=0.0, upper=10.0)
    """How long a cycle waits for the arm; 0 for two periods, of a Kinova three quarters of one. More for an emulated
    controller, whose time stands still meanwhile."""
    probe_torque: float = setting(0.15, "-", lower=0.0, upper=0.2, library_only=True)
    """Largest torque of the test of the commands' sign on the last joint, over its limit; the test ends when that joint
    has moved by 1 mrad. 0 leaves it out."""
    compensation_tolerance: float = setting(3.0, "Nm", lower=0.0, upper=100.0, library_only=True)
    """Largest difference between the controller's reported compensation at rest and this client's assumption."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.setup is TorqueSetup.OVERLAY and self.period > 0.005:
            raise ParameterOutOfRange("period [s]", self.period, "at most 0.005 for torques")
        if self.controller_load is not None and np.shape(self.controller_load) != (10,):
            raise ParameterOutOfRange("controller_load", np.shape(self.controller_load), "ten parameters")
