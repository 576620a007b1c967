"""The one way of a plan to the loop: its origin, its claims, the scene, and the proof."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from enum import IntEnum

from sysid_ros.core.certification.authentication import (
    KEY_FILE_VARIABLE,
    Authentication,
    AuthenticationKey,
    certificate_digest,
)
from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.drivers.admission import SceneGuard, admit_control, admit_trajectory
from sysid_ros.drivers.loop_types import LoopModel, LoopRefusal, RefusalCode
from sysid_ros.drivers.proof import OwnAssumptions, ProofProcess

_WHAT = "trajectory"


AuthenticationState = IntEnum("AuthenticationState", "OFF REQUIRED IMPOSSIBLE", start=0)
"""Which certificates are accepted; the numbers are as in ``DriverStatus``."""


class Authenticator:
    """Separates certificates of this suite's planner from others, and new ones from used ones.

    Args:
        key: Key that planner and driver share; None where there is none.
        allows_unauthenticated: Whether any certificate is accepted where there is no key.

    Attributes:
        session: This activation of the driver; certificates are made for one.
    """

    def __init__(self, key: AuthenticationKey | None, allows_unauthenticated: bool = False):
        self._key, self._allows_unauthenticated = key, allows_unauthenticated
        self.session = secrets.token_hex(16)
        self._used: dict[bytes, float] = {}  # digest of a certificate: when it expires [s of the loop's clock]

    @property
    def state(self) -> AuthenticationState:
        """Which certificates are accepted."""
        if self._key is not None:
            return AuthenticationState.REQUIRED
        return AuthenticationState.OFF if self._allows_unauthenticated else AuthenticationState.IMPOSSIBLE

    @property
    def fault(self) -> str | None:
        """Why no motion is allowed, with a remedy; None if motions are allowed."""
        if self.state is not AuthenticationState.IMPOSSIBLE:
            return None
        return (
            "there is no key to know the planner by: start planner and driver by the launch file, or both with "
            f"{KEY_FILE_VARIABLE}; with allow_unauthenticated, everybody on the network can make the arm move"
        )

    def admit(self, certificate: Certificate, given: Authentication) -> None:
        """Check that a certificate is accepted.

        Raises:
            LoopRefusal: It was not made with the key, or for another session, or has been used.
        """
        if self.fault is not None:
            raise LoopRefusal(_WHAT, self.fault, RefusalCode.NOT_AUTHENTIC)
        if self._key is not None:
            if not given.code:
                text = "its certificate has no authentication code; the safe planner needs the same key as the driver"
                raise LoopRefusal(_WHAT, text, RefusalCode.NOT_AUTHENTIC)
            if not self._key.is_genuine(certificate, given):
                text = "the authentication code of its certificate is not of the key of this driver"
                raise LoopRefusal(_WHAT, text, RefusalCode.NOT_AUTHENTIC)
            if given.session != self.session:
                text = (
                    f"its certificate was made for session {given.session[:12] or 'none'} of the driver, this is "
                    f"{self.session[:12]}; plan it again"
                )
                raise LoopRefusal(_WHAT, text, RefusalCode.REPLAYED)
        if certificate_digest(certificate) in self._used:
            raise LoopRefusal(_WHAT, "its certificate has been used; plan it again", RefusalCode.REPLAYED)

    def note_used(self, certificate: Certificate, now: float) -> None:
        """Mark a certificate as used at a time of the loop's clock [s]: it is not accepted again."""
        self._used = {digest: expiry for digest, expiry in self._used.items() if expiry > now}
        self._used[certificate_digest(certificate)] = certificate.expires_at


@dataclass(frozen=True)
class OfferedPlan:
    """A plan offered for execution, with its stated origin and session."""

    trajectory: Trajectory
    certificate: Certificate
    authentication: Authentication


@dataclass(frozen=True)
class Conditions:
    """Conditions in the loop when a plan is offered."""

    model: LoopModel
    """Model that the controller would use in it."""
    law: ControlLaw
    now: float
    steady: float
    """A steady time [s]."""


class PlanGate:
    """Admits plans of this suite's planner that match the driver's data and that it proves itself.

    The loop compares the arm's state with the plan when it begins.
    """

    def __init__(self, robot: RobotModel, authenticator: Authenticator, scene: SceneGuard, prover: ProofProcess):
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
