"""How the FRI client is set up; it has to agree with the application on the controller."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np

from sysid_ros.core.common.errors import ParameterOutOfRange, require_ranges
from sysid_ros.drivers.arm import Array
from sysid_ros.drivers.kuka_fri.messages import FriVersion

PORTS = (30200, 30209)
"""Ports the controller accepts."""


class TorqueSetup(Enum):
    """What the controller adds to the torques it is sent.

    ``OVERLAY``: gravity and Coriolis torques of its own model (KUKA's joint impedance control with zero stiffness and
    damping); the client subtracts the same. ``FULL``: nothing; what the client sends is the whole joint torque. Some
    controller applications and simulators of other makers are like that; KUKA's controller is not.
    """

    OVERLAY = "overlay"
    FULL = "full"


class PositionSent(Enum):
    """Which position goes with the torques.

    With zero stiffness it moves nothing, but a jump stops the arm. ``MEASURED``: the measured one; KUKA's controller
    then switches its friction compensation off, at rest at least. ``OFFSET``: ``position_offset`` beside the measured
    one, at zero too; friction compensation stays on. Friction in the data depends on this choice; link-side torques do
    not.
    """

    MEASURED = "measured"
    OFFSET = "offset"


_RANGES = {
    "port": (1024, 65535),
    "position_offset": (0.0, 0.2),
    "connect_timeout": (0.1, 300.0),
    "session_timeout": (0.005, 10.0),
    "late_limit": (0.001, 10.0),
    "rest_time": (0.02, 5.0),
    "hold_time": (0.02, 5.0),
    "hold_drift": (1e-4, 0.1),
    "wait_time": (0.0, 10.0),
    "probe_torque": (0.0, 0.2),
    "compensation_tolerance": (0.0, 100.0),
}


@dataclass(frozen=True)
class FriSettings:
    """Settings of the client.

    Attributes:
        version: Version of FRI on the controller.
        robot_ip: Address of the controller; other hosts are not heard. Empty hears everybody.
        port: Local UDP port, the one the controller's application names.
        period: Time between two commands, the controller's send period times its receive multiplier [s]; checked.
        setup: What the controller adds.
        position: Which position goes with the torques.
        position_offset: See :class:`PositionSent`; at most a quarter of the joint's range is used [rad].
        controller_load: Load that is configured on the controller, about the frame of the last joint, (10,); None for
            none. The controller compensates it.
        connect_timeout: Longest time for each step of taking the arm over [s].
        session_timeout: Silence of the controller after which the arm counts as lost [s].
        late_limit: Time between two messages beyond the period at which the arm brakes [s].
        rest_time: How long the resting arm is measured before it is taken over [s].
        hold_time: How long it must stay where it is under torque control before anything else [s].
        hold_drift: How far it may drift meanwhile [rad].
        wait_time: How long a cycle waits for its message [s]; 0 for two periods. More for an emulated controller, whose
            time stands still meanwhile.
        probe_torque: Largest torque of the test of the commands' sign on the last joint, over its limit [-]; the test
            ends when that joint has moved by 1 mrad. 0 leaves it out.
        compensation_tolerance: Largest difference between what the controller says it compensates at rest and what
            this client takes it for [Nm].
    """

    version: FriVersion = FriVersion.V1_15
    robot_ip: str = ""
    port: int = PORTS[0]
    period: float = 0.001
    setup: TorqueSetup = TorqueSetup.OVERLAY
    position: PositionSent = PositionSent.MEASURED
    position_offset: float = 0.1
    controller_load: Array | None = None
    connect_timeout: float = 15.0
    session_timeout: float = 0.1
    late_limit: float = 0.02
    rest_time: float = 0.2
    hold_time: float = 0.2
    hold_drift: float = 0.02
    wait_time: float = 0.0
    probe_torque: float = 0.15
    compensation_tolerance: float = 3.0

    def __post_init__(self) -> None:
        require_ranges(self, _RANGES)
        if not 0.001 <= self.period <= 0.01:
            raise ParameterOutOfRange("period [s]", self.period, "0.001 to 0.01: FRI commands at 100 Hz to 1 kHz")
        if self.setup is TorqueSetup.OVERLAY and self.period > 0.005:
            raise ParameterOutOfRange("period [s]", self.period, "at most 0.005 for torques")
        if self.controller_load is not None and np.shape(self.controller_load) != (10,):
            raise ParameterOutOfRange("controller_load", np.shape(self.controller_load), "ten parameters")
