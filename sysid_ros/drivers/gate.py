"""The one way of a plan to the loop: its origin, its claims, the scene, and the proof."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.certification.authentication import Authentication
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.admission import SceneGuard, admit_control, admit_trajectory
from sysid_ros.drivers.authentication import Authenticator
from sysid_ros.drivers.loop_types import LoopModel
from sysid_ros.drivers.proof import OwnAssumptions, PlanProver


@dataclass(frozen=True)
class OfferedPlan:
    """A plan offered for execution.

    Attributes:
        trajectory: Its path.
        certificate: Its certificate.
        authentication: Its stated origin and session.
    """

    trajectory: Trajectory
    certificate: Certificate
    authentication: Authentication


@dataclass(frozen=True)
class Conditions:
    """Conditions in the loop when a plan is offered.

    Attributes:
        model: Model that the controller would use in it.
        law: The control law that runs.
        now: Time of the loop's clock [s].
        steady: A steady time [s].
    """

    model: LoopModel
    law: ControlLaw
    now: float
    steady: float


class PlanGate:
    """Admits plans of this suite's planner that match the driver's data and that it proves itself.

    The loop compares the arm's state with the plan when it begins.
    """

    def __init__(self, robot: RobotModel, authenticator: Authenticator, scene: SceneGuard, prover: PlanProver):
        self._robot, self._authenticator, self._scene, self._prover = robot, authenticator, scene, prover

    def admit(self, plan: OfferedPlan, conditions: Conditions) -> float:
        """Check and prove a plan, cheapest first, and return the duration of the proof [s].

        Raises:
            LoopRefusal: It may not be executed; says which joint and by how much.
            ChildProcessFailed: It cannot be proven now.
        """
        model, certificate = conditions.model, plan.certificate
        boxes = model.theta_box, model.payload_box
        self._authenticator.admit(certificate, plan.authentication)
        admit_trajectory(self._robot, plan.trajectory, certificate, boxes, conditions.now)
        admit_control(certificate, conditions.law, model.payload)
        scene = self._scene.admit(certificate, conditions.steady)
        own = OwnAssumptions(boxes, model.payload, scene, conditions.law)
        return self._prover.prove(plan.trajectory, certificate, own)
