"""From the parameters and requests of ``safe_planner`` to certified plans; to be called in the thread of a search."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sysid_msgs.msg import ControlLaw, DriverStatus
from sysid_msgs.srv import CertifyTrajectory, PlanNext, PlanTo
from sysid_ros.adapters.safe_planner.scene import SceneStore
from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.authentication import AuthenticationKey
from sysid_ros.core.certification.plan import CertifiedPlan, PlanStatistics
from sysid_ros.core.certification.stop_model import VerifierSettings
from sysid_ros.core.common.errors import MISSING, ParameterOutOfRange, SysidError
from sysid_ros.core.control.gains import default_gains
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanFailure, PlanFailureCode, PlanRequest, RecedingSettings, Rejection
from sysid_ros.core.procedure import ANSWER_TIME
from sysid_ros.ros.conversions.authentication import require_authentic
from sysid_ros.ros.conversions.common import joint_vector_from_message, stamp_from_message
from sysid_ros.ros.conversions.estimate import estimate_from_message, nominal_payload_from_message
from sysid_ros.ros.conversions.plans import control_law_from_message, trajectory_from_message
from sysid_ros.ros.parameters import parameter, parameters_from
from sysid_ros.ros.robot import FixedSceneParameters, FrameParameters


@dataclass(frozen=True)
class SafePlannerParameters(FrameParameters, FixedSceneParameters):
    """Parameters of the node ``safe_planner``."""

    autostart: bool = parameter(True, read_only=True)
    """Certify as soon as the node runs."""
    obstacles_timeout: float = parameter(0.0, "s", lower=0.0, upper=3600.0, read_only=True)
    """Longest time without a message on obstacles, from the start on; after it nothing is certified and a moving arm
    brakes. 0: no limit, obstacles stay until they are deleted."""
    verifier: VerifierSettings = parameters_from(VerifierSettings, read_only=True)
    planner: RecedingSettings = parameters_from(
        RecedingSettings,
        # Wide margins, so that a later plan with a less certain payload still finds room.
        defaults={"position_margin": 0.05, "distance_margin": 0.03},
        computed=("torque_fraction", "brake_time"),
        read_only=True,
    )

    @property
    def search(self) -> RecedingSettings:
        """Settings of the search, which keeps a little more of the torque limits than the proof asks for.

        Raises:
            ParameterOutOfRange: Nothing is left.
        """
        fraction = self.planner.torque_fraction * self.verifier.torque_fraction
        return replace(self.planner, torque_fraction=fraction, brake_time=self.verifier.brake_times[-1])

    def check(self) -> None:
        """Refuse settings that leave the search no torque or no stop."""
        super().check()
        if not self.verifier.brake_times:
            raise ParameterOutOfRange("parameter 'brake_times' [s]", (), "at least one time")
        _ = self.search


_REMEMBERED_PLANS = 8
"""Plans that others may still take over from."""


def not_ready(reason: str) -> PlanFailure:
    """Return the failure of every request while nothing can be certified."""
    nothing = PlanStatistics(0, 0, 0, 0, {}, (), was_cut=False, cost=np.inf)
    return PlanFailure(Rejection(PlanFailureCode.NOT_READY, reason), nothing)


class PlanRequests:
    """Make a certified plan of each request, for the scene and the control law of the moment.

    Args:
        robot: The arm.
        scenes: The known scene.
        values: Parameters of the node.
        key: Key of the suite: the driver knows this planner by it, and this planner estimates; None without one.

    Attributes:
        planning_time: How long a search takes by default [s].
        control: The control law that plans are proven for.
    """

    def __init__(
        self, robot: RobotModel, scenes: SceneStore, values: SafePlannerParameters, key: AuthenticationKey | None = None
    ):
        self._robot, self._scenes, self._key = robot, scenes, key
        self._session, self._payload_epoch = "", 0
        self._planner = CertifiedPlanner(robot, values.search, values.verifier)
        self.planning_time = values.planner.planning_time
        self._plans: OrderedDict[str, CertifiedPlan] = OrderedDict()
        self.control = default_gains(robot)
        self._law_fault: str | None = None
        self._loop_ns: int | None = None  # time of the loop, by its last status
        self._heard_ns = 0  # when that was, steady time

    # Assumptions of a proof

    def on_control_law(self, message: ControlLaw) -> bool:
        """Prove bounds for the control law that the driver runs, its period included; return whether it is another.

        Raises:
            SysidError: Nothing is known of such a law; nothing is certified until there is another.
        """
        try:
            control = RobustSettings.of_law(control_law_from_message(message))
        except SysidError as error:
            self._law_fault = str(error)
            raise
        self._law_fault = None
        if control == self.control:
            return False
        self.control = control
        self._planner.forget()
        self._plans.clear()
        return True

    def on_driver_status(self, status: DriverStatus) -> None:
        """Note session, payload and time of the loop that executes plans; certificates are made for them."""
        self._session, self._payload_epoch = status.session, status.payload_epoch
        if status.mode != DriverStatus.MODE_IDLE:
            self._loop_ns, self._heard_ns = stamp_from_message(status.header.stamp), time.monotonic_ns()

    def require_ready(self) -> None:
        """Check that plans can be proven.

        Raises:
            PlanFailure: The driver's control law cannot be used.
        """
        if self._law_fault is not None:
            raise not_ready(self._law_fault)

    def conditions(self) -> object:
        """Return the conditions of a plan besides its request: under others the plan differs."""
        return (
            self._session,
            self._payload_epoch,
            self.control,
            self._law_fault,
            self._scenes.fault,
            self._scenes.latest.hash(),
        )

    # Plans

    def authenticate(self, plan: CertifiedPlan) -> CertifiedPlan:
        """Return a plan signed for the driver; without a key, as it is."""
        if self._key is None:
            return plan
        return replace(plan, authentication=self._key.authenticate(plan.certificate, self._session))

    def keep(self, plan: CertifiedPlan) -> None:
        """Keep a plan that others may take over from.

        Raises:
            ParameterOutOfRange: It was proven for a scene that is not the present one.
        """
        if plan.certificate.scene_hash != self._scenes.scene.hash():
            raise ParameterOutOfRange("the scene", "changed meanwhile", "the same until the end; plan again")
        self._plans[plan.plan_id] = plan
        while len(self._plans) > _REMEMBERED_PLANS:
            self._plans.popitem(last=False)

    def certify(self, request: CertifyTrajectory.Request) -> CertifiedPlan:
        """Prove a trajectory."""
        trajectory = trajectory_from_message(request.trajectory, self._robot.joint_names)
        return self._planner.certify(trajectory, self._assumptions_of(request), self._now())

    def plan_next(self, request: PlanNext.Request, is_unwanted: Callable[[], bool]) -> CertifiedPlan:
        """Plan the next segment of a motion, from rest or from a plan that is followed."""
        if request.purpose not in (PlanNext.Request.EXCITE, PlanNext.Request.MOVE):
            raise ParameterOutOfRange("PlanNext.purpose", request.purpose, "EXCITE = 0 or MOVE = 1")
        limit = request.time_limit or self.planning_time
        if not ANSWER_TIME < limit <= 3600.0:
            raise ParameterOutOfRange("PlanNext.time_limit [s]", limit, f"above {ANSWER_TIME:g}, at most 3600")
        is_move = request.purpose == PlanNext.Request.MOVE
        predecessor = self._find_plan(request.predecessor) if request.predecessor else None
        wanted = PlanRequest(
            assumptions=self._assumptions_of(request, predecessor),
            start=None if predecessor else self._joints(request, "start_position"),
            predecessor=predecessor,
            takeover_time=request.takeover_time,
            information=np.array(request.information, dtype=float).reshape(10, 10),
            goal=self._joints(request, "goal_position") if is_move else None,
            is_last=request.is_last,
            time_limit=limit - ANSWER_TIME,
        )
        return self._planner.plan(wanted, self._now(), is_unwanted)

    def plan_to(self, request: PlanTo.Request, is_unwanted: Callable[[], bool]) -> CertifiedPlan:
        """Plan a motion from rest to a goal."""
        for name in ("start_velocity", "start_acceleration"):
            if any(getattr(request, name)):
                raise ParameterOutOfRange(f"PlanTo.{name}", list(getattr(request, name)), "zero: use ~/plan_next")
        wanted = PlanRequest(
            self._assumptions_of(request),
            start=self._joints(request, "start_position"),
            goal=self._joints(request, "goal_position"),
        )
        return self._planner.plan_to(wanted, self._now(), request.duration or None, is_unwanted)

    def _now(self) -> float:
        """Return the time of the loop that executes plans [s].

        It is independent of the clock of this machine, which may be set; that one counts only before the first status.
        """
        if self._loop_ns is None:
            return 1e-9 * time.time_ns()
        return 1e-9 * (self._loop_ns + time.monotonic_ns() - self._heard_ns)

    def _find_plan(self, plan_id: str) -> CertifiedPlan:
        if plan_id not in self._plans:
            known = ", ".join(name[:12] for name in self._plans) or "none yet"
            raise ParameterOutOfRange("plan to take over from", plan_id[:12], f"one of the last plans: {known}")
        return self._plans[plan_id]

    def _joints(self, request: PlanNext.Request | PlanTo.Request, field: str) -> NDArray[np.float64]:
        message, values = type(request).__name__.removesuffix("_Request"), getattr(request, field)
        if not len(values):
            raise ParameterOutOfRange(f"{message}.{field}", MISSING, f"{self._robot.n} numbers [rad]")
        return joint_vector_from_message(message, field, request.joint_names, values, self._robot.joint_names)

    def _assumptions_of(
        self,
        request: CertifyTrajectory.Request | PlanNext.Request | PlanTo.Request,
        predecessor: CertifiedPlan | None = None,
    ) -> Assumptions:
        """Return the assumptions of a proof: present scene and control law, and the payload of a request.

        The nominal payload changes at rest only: a plan that takes over keeps the one of its predecessor.
        """
        robot, estimate = self._robot, estimate_from_message(request.estimate)
        # ~/plan_to leaves the nominal payload to the planner.
        nominal = nominal_payload_from_message(type(request).__name__, getattr(request, "nominal_payload", ()))
        if nominal is None and predecessor is not None:
            nominal = predecessor.certificate.nominal_payload
        if estimate is None:
            box = guess = None
        elif not estimate.is_consistent or estimate.target != "payload":
            given = f"of target {estimate.target}" if estimate.alarm is None else estimate.alarm.text
            raise ParameterOutOfRange("estimate", given, "a consistent estimate of a payload, or none")
        else:
            if self._key is not None:
                # The status may be some tenths of a second old; the driver itself compares the numbers.
                newest = max(self._payload_epoch, request.estimate.payload_epoch)
                require_authentic(request.estimate, self._key, self._session, newest)
            box, guess = estimate.box, np.array(estimate.values)
        return Assumptions.of_payload(robot, box, guess, nominal, self._scenes.scene, self.control)
