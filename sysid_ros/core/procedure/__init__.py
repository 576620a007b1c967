"""The identification procedure, free of ROS: move certified, estimate, until a stop rule holds (SAFE-ID Algorithm 2).

Motion and measurement are behind the protocols of :mod:`sysid_ros.core.procedure.ports`, so the same procedure, with
the same :class:`ModelPolicy`, runs over topics and services, and in lock-step with a simulated arm.
"""

from __future__ import annotations

from collections.abc import Callable

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.procedure.arm import EmptyHandPolicy, KnownLoadPolicy
from sysid_ros.core.procedure.base import ObserveProcedure, Procedure, give_prior
from sysid_ros.core.procedure.model_policy import ModelPolicy, PayloadModel
from sysid_ros.core.procedure.move import Move, MoveSettings, run_move
from sysid_ros.core.procedure.periodic import PeriodicProcedure
from sysid_ros.core.procedure.ports import (
    Arm,
    EstimateSource,
    ExcitationRequest,
    ModelRefused,
    MotionRequest,
    MotionState,
    Planner,
    Ports,
)
from sysid_ros.core.procedure.postures import PosturesProcedure
from sysid_ros.core.procedure.receding import ANSWER_TIME, RecedingProcedure
from sysid_ros.core.procedure.types import (
    STRATEGIES,
    Collection,
    Identification,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Phase,
    Progress,
    StopUnconfirmed,
    TareStep,
)

__all__ = [
    "ANSWER_TIME",
    "STRATEGIES",
    "Arm",
    "CertifiedPlan",
    "Collection",
    "EmptyHandPolicy",
    "EstimateSource",
    "ExcitationRequest",
    "Identification",
    "IdentificationErrorCode",
    "IdentificationFailed",
    "IdentificationSettings",
    "KnownLoadPolicy",
    "ModelPolicy",
    "ModelRefused",
    "MotionRequest",
    "MotionState",
    "Move",
    "MoveSettings",
    "PayloadModel",
    "Phase",
    "Planner",
    "Ports",
    "Progress",
    "StopUnconfirmed",
    "TareStep",
    "build_procedure",
    "end_tare",
    "run_identification",
    "run_move",
]

_PROCEDURES: dict[str, Callable[..., Procedure]] = {
    "receding": RecedingProcedure,
    "periodic": PeriodicProcedure,
    "postures": PosturesProcedure,
    "observe": ObserveProcedure,
}


def build_procedure(
    ports: Ports,
    policy: ModelPolicy,
    settings: IdentificationSettings,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Procedure:
    """Build the procedure of the requested strategy, to be run once.

    Args:
        ports: The planner, the arm and the source of estimates.
        policy: Decides on the payload model that planner and controller use: an :class:`EmptyHandPolicy` for a tare, a
            :class:`KnownLoadPolicy` for data about the arm itself with a known load.
        settings: Settings of the user.
        is_cancelled: Polled between steps and while the arm moves.
        on_progress: Called with every change.
    """
    return _PROCEDURES[settings.strategy](ports, policy, settings, is_cancelled, on_progress)


def run_identification(
    ports: Ports,
    policy: ModelPolicy,
    settings: IdentificationSettings,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Identification:
    """Identify the payload, see :func:`build_procedure`; on any failure the arm is braked before the error leaves.

    Raises:
        IdentificationFailed: With the code and a sentence.

    Source: SAFE-ID Algorithm 2.
    """
    return build_procedure(ports, policy, settings, is_cancelled, on_progress).run()


def end_tare(ports: Ports, policy: ModelPolicy) -> None:
    """Keep the result of a tare, and be ready for any payload again, at rest where the arm may hold one.

    Raises:
        IdentificationFailed: The samples are no tare, or the controller does not accept the prior.
    """
    ports.estimates.reset("the tare ends", TareStep.END)
    give_prior(ports.arm, policy)
