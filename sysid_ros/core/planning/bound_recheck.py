"""Proves the tracking bounds of certified plans again, plan after plan: each inherits the errors of the one before."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.control.tracking_bound import TrackingBound, bound_motion
from sysid_ros.core.errors import SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.bundle import CertifiedPlan

_ROUNDING = 1e-6
"""Relative difference of two bounds for the same motion that counts as rounding."""


class BoundRechecker:
    """Checks the plans of one robot in the order they were issued.

    Args:
        robot: The robot; its parameters, friction and sensors enter the bounds.
        settings: Gains and timing of the controller.
    """

    def __init__(self, robot: RobotModel, settings: RobustSettings | None = None):
        self._robot = robot
        self._settings = settings or RobustSettings()
        self._bounds: dict[str, TrackingBound] = {}

    def check(self, plan: CertifiedPlan) -> tuple[str, ...]:
        """The problems of the errors that a certificate allows for, in sentences; none if they are proven bounds."""
        control = plan.certificate.control
        if control is None:
            return ("its certificate does not state what its tracking bound rests on",)
        if control.law != self._settings.law:
            return (f"its tracking bound is for the controller '{control.law}'; known here is '{self._settings.law}'",)
        if control.after and control.after not in self._bounds:
            return (f"it takes over from plan {control.after[:12]}, which is not here or has no bound",)
        try:
            history = self._bounds[control.after].until(control.after_time) if control.after else None
            found = bound_motion(
                self._robot, plan.boxes, control.nominal_payload, plan.trajectory, history, self._settings
            )
        except SysidError as error:
            return (f"its tracking bound cannot be proven: {error}",)
        self._bounds[plan.certificate.plan_hash] = found
        return self._understated(plan, found)

    def _understated(self, plan: CertifiedPlan, found: TrackingBound) -> tuple[str, ...]:
        certificate, problems = plan.certificate, []
        stated = (
            ("position error", "rad", certificate.tracking_bound, found.position),
            ("velocity error", "rad/s", certificate.velocity_bound, found.velocity),
            ("feedback torque", "Nm", certificate.torque_bound, found.torque),
        )
        for name, unit, values, proven in stated:
            if values is None:
                problems.append(f"its certificate states no bound of the {name}")
                continue
            excess = proven * (1.0 - _ROUNDING) - values
            worst = int(np.argmax(excess))
            if not excess[worst] <= 0.0:
                problems.append(
                    f"its certificate states a {name} of {self._robot.joint_names[worst]} up to {values[worst]:.6g} "
                    f"{unit}, proven is {proven[worst]:.6g} {unit}"
                )
        if not certificate.control.after and certificate.control.rest_before < found.settling_time - 1e-9:
            problems.append(
                f"its certificate asks for {certificate.control.rest_before:.2f} s of rest before it, needed are "
                f"{found.settling_time:.2f} s"
            )
        return tuple(problems)
