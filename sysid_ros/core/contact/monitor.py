"""Contact while an estimator runs: its windows become the reference, then every window is compared with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.contact.external_torque import ExternalTorque, ExternalTorqueObserver, Reference
from sysid_ros.core.contact.wrench import ContactSettings, ToolWrench, WrenchObserver
from sysid_ros.core.estimation.parameters.bounds import ParameterBounds
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.robot import RobotModel

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Contact:
    """Contact information of a window.

    Attributes:
        torque: External joint torques.
        wrench: The wrench at the tool, without contact elsewhere.
        smallest: Smallest force and moment along each axis of the tool that the window would have proven, (6,) [N, Nm].
    """

    torque: ExternalTorque
    wrench: ToolWrench
    smallest: Array


class ContactMonitor:
    """Follows an estimator of the same arm and reports contacts.

    For ``reference_duration`` the reference follows the estimator, through its restarts too; then it stays, whatever
    the estimator does during contacts, until :meth:`restart`.

    Args:
        robot: The arm.
        estimator: Its estimator, which receives every block before the monitor: both use the same windows, whose
            signals are computed once.
        contact: Assumptions about contacts.

    Attributes:
        is_complete: Whether the time of the reference is over: from here on contacts are allowed.

    Raises:
        ParameterOutOfRange: The estimator identifies all bodies at once.
    """

    def __init__(
        self,
        robot: RobotModel,
        estimator: StreamingEstimator,
        contact: ContactSettings | None = None,
    ):
        self._contact = contact or ContactSettings()
        self._estimator = estimator
        settings = estimator.settings
        self._observer = ExternalTorqueObserver(robot, settings, estimator.stream.prior_model)
        self._wrenches = WrenchObserver(robot, self._contact, settings.acceleration_factor * robot.limits.a_max)
        self._bounds: ParameterBounds | None = None
        self._start: int | None = None
        self.is_complete = False

    @property
    def reference(self) -> Reference:
        """Reference of the comparison."""
        return self._observer.reference

    def restart(self) -> None:
        """Take a new reference, as after a change of the payload."""
        self._observer.clear()
        self._bounds, self._start, self.is_complete = None, None, False

    def follow(self, block: SampleBlock) -> None:
        """Adopt the estimator's knowledge, without looking for contacts."""
        if self.is_complete or not len(block):
            return
        self._start = int(block.stamps[0]) if self._start is None else self._start
        duration = round(self._contact.reference_duration * 1e9)
        bounds = self._estimator.bounds
        if duration and bounds is not self._bounds:
            self._bounds = bounds
            stamp = self._estimator.stream.reference
            self._observer.set_reference(self._estimator.stored_windows, bounds.box, stamp)
        self.is_complete = int(block.stamps[-1]) - self._start >= duration

    def add(self, block: SampleBlock) -> list[Contact]:
        """Return the contacts in the windows that the estimator's latest block completes."""
        self.follow(block)
        return [self._report(self._observer.observe(window)) for window in self._estimator.windows]

    def _report(self, torque: ExternalTorque) -> Contact:
        return Contact(torque, self._wrenches.observe(torque), self._wrenches.smallest_detectable(torque))
