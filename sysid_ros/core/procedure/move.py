"""A move to a goal by certified plans that take over from each other, with the payload as it is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.procedure.receding import Ending, RecedingProcedure
from sysid_ros.core.procedure.types import (
    IdentificationBackend,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Phase,
    PlannedPart,
    Progress,
)

_PROGRESS = 0.9
"""A plan that leaves more than this share of the distance is no progress."""
_STALLS = 3
"""After so many plans in a row without progress the move ends."""


@dataclass(frozen=True)
class Move:
    """Outcome of a move.

    Attributes:
        distance: Distance of the joint that is farthest from its goal, where the arm rests [rad].
        motion_time: How long the arm has moved [s].
        parts: Plans that were executed.
        smallest_torque_margin: Of their certificates, as a share of the limits [-].
    """

    distance: float
    motion_time: float
    parts: int
    smallest_torque_margin: float


def run_move(
    backend: IdentificationBackend,
    goal: ArrayLike,
    tolerance: float,
    max_motion_time: float,
    is_cancelled: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Progress], None] = lambda progress: None,
) -> Move:
    """Moves to a posture; on any failure the arm is braked before the error leaves this function.

    Args:
        backend: The arm and the planner.
        goal: Posture, (n,) [rad].
        tolerance: Largest distance of a joint from it at the end [rad].
        max_motion_time: Longest motion [s].
        is_cancelled: Looked at between all steps and while the arm moves.
        on_progress: Called with every change.

    Raises:
        IdentificationFailed: With the code and a sentence; ``PLAN_FAILED`` if the goal cannot be reached.
        ParameterOutOfRange: The tolerance or the time is not positive.
    """
    if not 0.0 < tolerance < np.inf:
        raise ParameterOutOfRange("tolerance [rad]", tolerance, "above 0")
    settings = IdentificationSettings(max_motion_time=max_motion_time, weighing_time=0.0)
    return _MoveProcedure(backend, settings, np.array(goal, dtype=float), tolerance, is_cancelled, on_progress).move()


class _MoveProcedure(RecedingProcedure):
    def __init__(
        self,
        backend: IdentificationBackend,
        settings: IdentificationSettings,
        goal: NDArray[np.float64],
        tolerance: float,
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ):
        super().__init__(backend, settings, is_cancelled, on_progress)
        self._goal, self._tolerance = goal, tolerance
        self._distances: list[float] = []  # of the ends of all plans
        self._first = np.inf

    def move(self) -> Move:
        self._report(Phase.WAITING, "waiting for the arm", 0.0)
        try:
            self._backend.check_ready()
            # What was noticed at rest, as that the payload is another one, must be known before anything moves.
            self._backend.settle(0.0)
            self._require_consistent(self._backend.estimate())
            reason = self._move()
            self._require_consistent(self._backend.estimate())
            if self._distance > self._tolerance:
                raise IdentificationFailed(
                    IdentificationErrorCode.PLAN_FAILED,
                    f"the arm rests {self._distance:.3f} rad away from the goal, allowed {self._tolerance:g}: {reason}",
                )
        except IdentificationFailed as failure:
            self._stop(str(failure))
            raise
        except Exception as error:
            self._stop(f"internal error: {error}")
            raise
        margins = [value for one in self._certificates for name, value in one.margins.items() if "torque" in name]
        return Move(self._distance, self._motion_time, len(self._motions), min(margins, default=1.0))

    @property
    def _distance(self) -> float:
        """Distance from the goal at the end of the last plan that was executed."""
        return float(np.abs(self._motions[-1].trajectory.end - self._goal).max()) if self._motions else np.inf

    def _plan(self, before: PlannedPart | None, ahead: Sequence[PlannedPart]) -> PlannedPart:
        part = self._backend.plan_next(before, np.zeros((10, 10)), self._goal)
        self._plan_duration, self._takeover_time = part.motion.trajectory.duration, part.takeover_time
        self._planned += 1
        self._distances.append(float(np.abs(part.motion.trajectory.end - self._goal).max()))
        if before is None and not np.isfinite(self._first):
            self._first = max(float(np.abs(part.motion.trajectory.start - self._goal).max()), 1e-9)
        return part

    def _wait_to_plan(self, part: PlannedPart, following: PlannedPart) -> None:
        """A plan is asked for at once: no data come in that it could be better for."""

    def _settle(self, progress: float) -> None:
        """Nothing is estimated, but the controller settles."""
        self._backend.wait(self._settings.settle_time)

    def _stop_rule(self, widths: Sequence[NDArray[np.float64]], ahead: int) -> Ending | None:
        distances = self._distances
        if distances[-1] <= self._tolerance:
            return Ending("the goal is reached", True)
        recent = distances[-1 - _STALLS :]
        if len(recent) > _STALLS and min(recent[1:]) > _PROGRESS * recent[0]:
            return Ending("no plan gets closer to it", True)
        if not self._has_time(ahead):
            return Ending(f"another plan would exceed {self._settings.max_motion_time:g} s of motion", True)
        return None

    @property
    def _fraction(self) -> float:
        if not self._motions:
            return 0.0
        return min(1.0, max(self._progress, 1.0 - self._distance / self._first))
