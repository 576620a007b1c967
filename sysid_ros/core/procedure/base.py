"""What every way of moving the arm shares: weigh first, look at the estimate, bring the arm to rest on any failure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.procedure.types import (
    Identification,
    IdentificationBackend,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    MotionState,
    Phase,
    PlannedMotion,
    Progress,
)

POLL_PERIOD = 0.1
"""Time between two looks at the arm while it moves [s]."""
MOTION_GRACE = 2.0
"""How much longer than planned a motion may take before it counts as failed [s], unless the arm still moves on."""


class Procedure(ABC):
    """One identification.

    Args:
        backend: The arm, the planners and the estimator.
        settings: What the user asks for.
        is_cancelled: Looked at between all steps and while the arm moves.
        on_progress: Called with every change.
    """

    def __init__(
        self,
        backend: IdentificationBackend,
        settings: IdentificationSettings,
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ):
        self._backend = backend
        self._settings = settings
        self._is_cancelled = is_cancelled
        self._on_progress = on_progress
        self._motions: list[PlannedMotion] = []
        self._certificates: list[Certificate] = []
        self._motion_time = 0.0
        self._progress = 0.0

    def run(self) -> Identification:
        """Runs it; on any failure the arm is braked before the error leaves.

        Raises:
            IdentificationFailed: With the code and a sentence.
        """
        self._report(Phase.WAITING, "waiting for the arm and its samples", 0.0)
        try:
            self._backend.check_ready()
            self._backend.reset_estimate("identification starts")
            self._weigh()
            stop_reason = self._move()
            estimate = self._final_estimate()
        except IdentificationFailed as failure:
            self._stop(str(failure))
            raise
        except Exception as error:
            self._stop(f"internal error: {error}")
            raise
        return Identification(estimate, tuple(self._motions), tuple(self._certificates), self._motion_time, stop_reason)

    @abstractmethod
    def _move(self) -> str:
        """Moves until a stop rule holds, with the arm at rest in the end; returns which one."""

    @property
    @abstractmethod
    def _expected(self) -> int:
        """How many trajectories there may be."""

    def _weigh(self) -> None:
        if self._settings.weighing_time > 0.0:
            self._report(Phase.ESTIMATING, "weighing at rest", 0.0)
            self._backend.settle(self._settings.weighing_time)
            self._require_consistent(self._backend.estimate())
            self._require_not_cancelled()

    def _settle(self, progress: float) -> None:
        self._report(Phase.ESTIMATING, "at rest, evaluating", progress)
        self._backend.settle(self._settings.settle_time)

    def _final_estimate(self) -> ParameterEstimate:
        estimate = self._backend.estimate()
        if estimate is None:
            raise IdentificationFailed(
                IdentificationErrorCode.NO_SAMPLES, "the estimator has published no estimate although the arm moved"
            )
        self._require_consistent(estimate)
        return estimate

    def _target_is_met(self, estimate: ParameterEstimate | None) -> str:
        """Why the target width ends the procedure; empty if it does not."""
        target = self._settings.target_mass_width
        if estimate is None or estimate.upper[0] - estimate.lower[0] > target:
            return ""
        return f"the mass interval is narrower than {target:g} kg"

    def _require_moving_well(self) -> MotionState:
        """What the arm is doing.

        Raises:
            IdentificationFailed: The motion has failed, the goal is cancelled, or the data contradict the assumptions.
        """
        self._require_not_cancelled()
        state = self._backend.motion_state()
        if state.has_failed:
            raise IdentificationFailed(IdentificationErrorCode.EXECUTION_FAILED, state.text)
        self._require_consistent(self._backend.estimate())
        return state

    def _require_consistent(self, estimate: ParameterEstimate | None) -> None:
        if estimate is not None and not estimate.is_consistent:
            raise IdentificationFailed(IdentificationErrorCode.INCONSISTENT, estimate.alarm)

    def _require_not_cancelled(self) -> None:
        if self._is_cancelled():
            raise IdentificationFailed(IdentificationErrorCode.CANCELED, "the goal was cancelled")

    def _stop(self, reason: str) -> None:
        self._report(Phase.STOPPING, "bringing the arm to rest", self._progress)
        self._backend.brake(reason)

    def _report(self, phase: Phase, text: str, progress: float) -> None:
        self._progress = progress
        self._on_progress(Progress(phase, text, progress, len(self._motions), self._expected, self._backend.estimate()))


_LOOK_PERIOD = 0.5
"""Time between two looks at the estimate [s]."""


class ObserveProcedure(Procedure):
    """Watches for a while, or until the payload is known well enough.

    Whatever the arm does is data. Where it does nothing, the bounds say what gravity alone tells.
    """

    @property
    def _expected(self) -> int:
        return 0

    def _weigh(self) -> None:
        """There is no rest to wait for: the arm may be moving."""

    def _move(self) -> str:
        backend, longest = self._backend, self._settings.max_motion_time
        looks = max(1, round(longest / _LOOK_PERIOD))
        for look in range(looks):
            self._report(Phase.ESTIMATING, "watching the arm", look / looks)
            backend.wait(_LOOK_PERIOD)
            self._require_not_cancelled()
            self._require_consistent(backend.estimate())
            reason = self._target_is_met(backend.estimate())
            if reason:
                return reason
        self._report(Phase.ESTIMATING, "evaluating", 1.0)
        backend.settle(0.0)  # with all that was seen until now, and no more: the arm may go on moving
        self._require_consistent(backend.estimate())
        return f"the arm was watched for {longest:g} s"
