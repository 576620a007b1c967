"""Tool and payload that the base of a Gen3 counts with, without inertia: its service ControlConfig.

The centre of mass of the tool is seen from the interface module, the payload's from the tool frame.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import pinocchio as pin

from sysid_ros.core.model.inertia import from_com_form, transform_parameters
from sysid_ros.drivers.arm import ArmError, Array
from sysid_ros.drivers.kinova_kortex.client import KortexClient
from sysid_ros.drivers.kinova_kortex.enums import Function, KortexConnectionLost
from sysid_ros.drivers.kinova_kortex.messages import Feedback
from sysid_ros.drivers.kinova_kortex.settings import KortexSettings

_ATTEMPTS = 10
"""Requests for feedback until one is answered; the network may lose them."""


class BaseLoad(NamedTuple):
    """Report of a base: Kinova's ToolConfiguration and PayloadInformation, and the state of the arm."""

    tool: Any
    payload: Any
    feedback: Feedback

    @property
    def of_tool(self) -> Array:
        """The tool at the interface module, (10,)."""
        return _parameters(self.tool.tool_mass, self.tool.tool_mass_center)

    @property
    def parameters(self) -> Array:
        """Tool and payload at the interface module, (10,)."""
        payload = _parameters(self.payload.payload_mass, self.payload.payload_mass_center)
        return self.of_tool + transform_parameters(payload, *self.tool_frame)

    @property
    def tool_frame(self) -> tuple[Array, Array]:
        """Rotation (3, 3) and origin (3,) [m] of the tool frame, seen from the interface module."""
        t = self.tool.tool_transform
        turned = [t.theta_x, t.theta_y, t.theta_z]
        if np.count_nonzero(turned) > 1:
            raise ArmError(
                f"the tool frame of the base is turned about several axes ({turned} deg), and Kinova's documentation "
                "does not say in which order: turn it about one in the Web App, then try again"
            )
        return pin.rpy.rpyToMatrix(np.radians(turned)), np.array([t.x, t.y, t.z])


def _parameters(mass: float, center: Any) -> Array:
    return from_com_form(mass, [center.x, center.y, center.z], np.zeros((3, 3)))


def exchange_load(settings: KortexSettings, changes: Mapping[Function, bytes] | None = None) -> BaseLoad:
    """Have a base take changes, encoded messages by function; return its load. Raises as :meth:`KortexClient.open`."""
    with contextlib.closing(KortexClient(settings, 0)) as client:
        client.open()
        for function, data in (changes or {}).items():
            client.call(function, "Empty", data)
        tool = client.call(Function.GET_TOOL_CONFIGURATION, "ToolConfiguration")
        payload = client.call(Function.GET_PAYLOAD_INFORMATION, "PayloadInformation")
        for _ in range(_ATTEMPTS):
            if (feedback := client.refresh(None, settings.connect_timeout / _ATTEMPTS)) is not None:
                return BaseLoad(tool, payload, feedback)
        raise KortexConnectionLost(f"no usable feedback came ({client.counts.rejected or 'no answer over UDP'})")
