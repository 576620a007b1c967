"""The identification procedure, free of ROS: move certified, estimate, until a stop rule holds (SAFE-ID Algorithm 2).

The parts that move the arm and look at it are behind :class:`IdentificationBackend`, so the same procedure runs over
topics and services, and in lock-step with a simulated arm.
"""

from __future__ import annotations

from collections.abc import Callable

from sysid_ros.core.procedure.base import ObserveProcedure
from sysid_ros.core.procedure.move import Move, run_move
from sysid_ros.core.procedure.periodic import PeriodicProcedure
from sysid_ros.core.procedure.receding import RecedingProcedure
from sysid_ros.core.procedure.types import (
    STRATEGIES,
    Identification,
    IdentificationBackend,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    MotionState,
    Phase,
    PlannedMotion,
    PlannedPart,
    Progress,
)

__all__ = [
    "STRATEGIES",
    "Identification",
    "IdentificationBackend",
    "IdentificationErrorCode",
    "IdentificationFailed",
    "IdentificationSettings",
    "MotionState",
    "Move",
    "Phase",
    "PlannedMotion",
    "PlannedPart",
    "Progress",
    "run_identification",
    "run_move",
]

_PROCEDURES = {"receding": RecedingProcedure, "periodic": PeriodicProcedure, "observe": ObserveProcedure}


def run_identification(
    backend: IdentificationBackend,
    settings: IdentificationSettings,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Identification:
    """Identifies the payload; on any failure the arm is braked before the error leaves this function.

    Args:
        backend: The arm, the planners and the estimator.
        settings: What the user asks for.
        is_cancelled: Looked at between all steps and while the arm moves.
        on_progress: Called with every change.

    Raises:
        IdentificationFailed: With the code and a sentence.

    Source: SAFE-ID Algorithm 2.
    """
    return _PROCEDURES[settings.strategy](backend, settings, is_cancelled, on_progress).run()
