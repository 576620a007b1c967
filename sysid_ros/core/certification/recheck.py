"""Proves the tracking bounds of certified plans again, plan after plan: each inherits the errors of the one before."""

from __future__ import annotations

import numpy as np

from sysid_ros.core.certification.motion_checks import STOP_ERRORS, stop_torque_growths
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.tracking_bound.bound import TrackingBound, TrackingHistory, bound_motion
from sysid_ros.core.trajectories.serialization import BrakedTrajectory, Trajectory

_ROUNDING = 1e-6
"""Relative difference of two bounds for the same motion that counts as rounding."""


class BoundRechecker:
    """Checks the plans of one robot in the order they were issued.

    Args:
        robot: The robot; its parameters, friction and sensors enter the bounds.
        stop_spacing: Distance of the times at which stops along the path are proven, too [s]; 0 for none.
    """

    def __init__(self, robot: RobotModel, stop_spacing: float = 0.0):
        self._robot, self._stop_spacing = robot, stop_spacing
        self._bounds: dict[str, list[TrackingBound]] = {}

    def check(self, plan: CertifiedPlan) -> tuple[str, ...]:
        """The problems of the errors that a certificate allows for, in sentences; none if they are proven bounds."""
        control = plan.certificate.control
        if control is None:
            return ("its certificate does not state what its tracking bound rests on",)
        try:
            settings = RobustSettings.from_law(control.law)
        except SysidError as error:
            return (f"its tracking bound is for the controller '{control.law}', which has none: {error}",)
        if control.after and control.after not in self._bounds:
            return (f"it takes over from plan {control.after[:12]}, which is not here or has no bound",)
        try:
            # A plan that was certified again with another payload has several; which of them was executed, its hash
            # does not tell, so all count.
            bounds = self._bounds[control.after] if control.after else ()
            before = [bound.until(control.after_time) for bound in bounds] or [None]
            found = [self._prove(plan, plan.trajectory, history, settings) for history in before]
        except SysidError as error:
            return (f"its tracking bound cannot be proven: {error}",)
        known = self._bounds.setdefault(plan.certificate.plan_hash, [])
        known += [bound for bound in found if bound.digest() not in {one.digest() for one in known}]
        problems = [problem for bound in found for problem in self._understated(plan, bound)]
        problems += [problem for history in before for problem in self._unstoppable(plan, history, settings)]
        return tuple(dict.fromkeys(problems))

    def _unstoppable(
        self, plan: CertifiedPlan, history: TrackingHistory | None, settings: RobustSettings
    ) -> tuple[str, ...]:
        """Problems of stops along the path that begin at the chosen times."""
        certificate, path, problems = plan.certificate, plan.trajectory, []
        stated = (certificate.tracking_bound, certificate.velocity_bound, certificate.torque_bound)
        if not self._stop_spacing or any(values is None for values in stated):
            return ()  # a bound that is not stated is a problem of the plan itself
        if not 0.0 < certificate.brake_time < np.inf:
            missing = f"its stops have no bounds: the brake time of its certificate is {certificate.brake_time:g} s"
            return (missing,) if certificate.method == "interval" else ()
        for begin in np.arange(0.5 * self._stop_spacing, path.duration, self._stop_spacing):
            stop = BrakedTrajectory(path, float(begin), certificate.brake_time)
            factor = 1.0 + stop_torque_growths(path, certificate.brake_time, np.array([begin]))[0]
            allowed = (
                ("position", "rad", STOP_ERRORS * certificate.tracking_bound),
                ("velocity", "rad/s", STOP_ERRORS * certificate.velocity_bound),
                ("torque", "Nm", factor * certificate.torque_bound),
            )
            try:
                found = self._prove(plan, stop, history, settings)
            except SysidError as error:
                problems.append(f"the tracking bound of its stop at {begin:.3f} s cannot be proven: {error}")
                continue
            for name, unit, limit in allowed:
                values = getattr(found, name)
                worst = int(np.argmax(values / limit))
                if not values[worst] <= limit[worst]:
                    joint = self._robot.joint_names[worst]
                    problems.append(
                        f"in a stop at {begin:.3f} s the {name} error of {joint} is only proven to stay below "
                        f"{values[worst]:.6g} {unit}, allowed for are {limit[worst]:.6g} {unit}"
                    )
        return tuple(problems)

    def _prove(
        self, plan: CertifiedPlan, path: Trajectory, history: TrackingHistory | None, settings: RobustSettings
    ) -> TrackingBound:
        payload = plan.certificate.control.nominal_payload
        return bound_motion(self._robot, plan.boxes, payload, path, history, settings)

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
