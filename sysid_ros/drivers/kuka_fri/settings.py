"""Settings of the FRI client; they have to agree with the application on the controller."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.settings import setting
from sysid_ros.drivers.arm import Array, ConnectionSettings
from sysid_ros.drivers.modes import FRI_PORTS, FriVersion


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


@dataclass(frozen=True, kw_only=True)
class FriSettings(ConnectionSettings):
    """Settings of the client."""

    version: FriVersion = setting(FriVersion.V1_15)
    """Version of FRI on the controller; 1.14 and 1.16 are as 1.15."""
    robot_ip: str = setting("")
    """Address of the controller; other hosts are ignored. Empty accepts all hosts."""
    port: int = setting(FRI_PORTS[0], "-", lower=1024, upper=65535)
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
    probe_torque: float = setting(0.15, "-", lower=0.0, upper=0.2, library_only=True)
    compensation_tolerance: float = setting(3.0, "Nm", lower=0.0, upper=100.0, library_only=True)
    """Largest difference between the controller's reported compensation at rest and this client's assumption."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.setup is TorqueSetup.OVERLAY and self.period > 0.005:
            raise ParameterOutOfRange("period [s]", self.period, "at most 0.005 for torques")
        if self.controller_load is not None and np.shape(self.controller_load) != (10,):
            raise ParameterOutOfRange("controller_load", np.shape(self.controller_load), "ten parameters")
