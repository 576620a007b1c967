"""Move to a goal by certified plans, from rest to rest, with the present payload model.

Usually that is one straight motion. With an obstacle in between it is the legs of a way around, each proven before it
begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.procedure.model_policy import ModelPolicy
from sysid_ros.core.procedure.ports import Ports
from sysid_ros.core.procedure.receding import RecedingProcedure
from sysid_ros.core.procedure.types import (
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Phase,
    Progress,
)

_TORQUES = (LimitKind.TORQUE, LimitKind.BRAKING_TORQUE)
_STALLS = 3
"""After so many plans in a row that hardly move the arm, a move ends."""
_HARDLY = 0.02
"""How far that is, in any joint [rad]."""


@dataclass(frozen=True)
class MoveSettings:
    """Request for a move.

    Attributes:
        goal: Posture to get to, (n,) [rad].
        tolerance: Largest distance of a joint from it at the end [rad].
        max_motion_time: Longest motion [s].
        forget_payload: Whether controller and estimator go back to the payload's prior first.

    Raises:
        ParameterOutOfRange: The tolerance is not positive.
    """

    goal: NDArray[np.float64]
    tolerance: float
    max_motion_time: float
    forget_payload: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.tolerance < np.inf:
            raise ParameterOutOfRange("tolerance [rad]", self.tolerance, "above 0")


@dataclass(frozen=True)
class Move:
    """Outcome of a move.

    Attributes:
        distance: Distance of the joint that is farthest from its goal, where the arm rests [rad].
        motion_time: Time the arm has moved [s].
        plans: Plans that were executed.
        smallest_torque_margin: Of their certificates, as a share of the limits [-].
    """

    distance: float
    motion_time: float
    plans: int
    smallest_torque_margin: float


def run_move(
    ports: Ports,
    policy: ModelPolicy,
    move: MoveSettings,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Move:
    """Move to a posture; on any failure the arm is braked before the error leaves this function.

    Args:
        ports: The planner, the arm and the source of estimates.
        policy: Decides on the payload model; one that may not tighten keeps the model in use.
        move: The request.
        is_cancelled: Polled between steps and while the arm moves.
        on_progress: Called with every change.

    Raises:
        IdentificationFailed: With the code and a sentence; ``PLAN_FAILED`` if the goal cannot be reached.
        ParameterOutOfRange: The time is not positive.
    """
    return _MoveProcedure(ports, policy, move, is_cancelled, on_progress).move()


class _MoveProcedure(RecedingProcedure):
    def __init__(
        self,
        ports: Ports,
        policy: ModelPolicy,
        move: MoveSettings,
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ):
        settings = IdentificationSettings(max_motion_time=move.max_motion_time, weighing_time=0.0)
        super().__init__(ports, policy, settings, is_cancelled, on_progress)
        self._wanted = move

    def move(self) -> Move:
        return self._end_at_rest(self._move_to_goal)

    def _move_to_goal(self) -> Move:
        self._report(Phase.WAITING, "waiting for the arm", 0.0)
        self._arm.wait_until_ready()
        if self._wanted.forget_payload:
            self._forget_payload("a move with the prior of the payload starts")
        # Findings at rest, such as another payload, must be known before the arm moves.
        self._estimates.catch_up()
        self._policy.require_consistent(self._estimates.latest())
        reason = self._move()
        self._policy.require_consistent(self._estimates.latest())
        allowed = self._wanted.tolerance
        if self._distance > allowed:
            raise IdentificationFailed(
                IdentificationErrorCode.PLAN_FAILED,
                f"the arm rests {self._distance:.3f} rad away from the goal, allowed {allowed:g}: {reason}",
            )
        margins = [left.value for plan in self._plans for left in plan.certificate.margins if left.limit in _TORQUES]
        return Move(self._distance, self._motion_time, len(self._plans), min(margins, default=1.0))

    @property
    def _distance(self) -> float:
        """Distance from the goal at the end of the last plan that was executed."""
        return self._distance_of(self._plans[-1].trajectory.end) if self._plans else np.inf

    def _distance_of(self, posture: NDArray[np.float64]) -> float:
        return float(np.abs(posture - self._wanted.goal).max())

    @property
    def _posture_wanted(self) -> NDArray[np.float64]:
        return self._wanted.goal

    def _move(self) -> str:
        stalls = 0
        for _ in range(20):
            self._report(Phase.PLANNING, "planning", self._fraction)
            self._require_not_cancelled()
            plan = self._plan_leg()
            if plan is None:
                return "no motion could be proven that gets closer to it"
            if self._motion_time + plan.duration > self._settings.max_motion_time + 1e-9:
                allowed = f"{self._settings.max_motion_time:g} s of motion are allowed"
                if not self._plans:
                    text = f"the first motion takes {plan.duration:.1f} s, but only {allowed}"
                    raise IdentificationFailed(IdentificationErrorCode.INVALID_GOAL, text)
                return f"the next motion takes {plan.duration:.1f} s, and {allowed} in all"
            self._arm.execute(plan)
            self._note(plan)
            self._follow(plan)
            self._motion_time += plan.duration
            self._arm.wait(self._settings.settle_time)  # the controller settles; no estimation
            if self._distance <= self._wanted.tolerance:
                return "the goal is reached"
            moved = np.abs(plan.trajectory.end - plan.trajectory.start).max()
            stalls = stalls + 1 if moved < _HARDLY else 0
            if stalls == _STALLS:
                break
        return "no plan gets closer to it"

    def _plan_leg(self) -> CertifiedPlan | None:
        """Plan from rest; None without a plan, which is a failure only if the arm has not moved yet."""
        try:
            return self._plan_first()[0]
        except IdentificationFailed as failure:
            if not self._plans or failure.code is not IdentificationErrorCode.PLAN_FAILED:
                raise
            return None

    def _note(self, plan: CertifiedPlan) -> None:
        self._plans.append(plan)
        self._report(Phase.MOVING, f"moving for {plan.duration:.1f} s", self._fraction)

    @property
    def _fraction(self) -> float:
        if not self._plans:
            return 0.0
        begin = max(self._distance_of(self._plans[0].trajectory.start), 1e-9)
        return min(1.0, max(self._progress, 1.0 - self._distance / begin))
