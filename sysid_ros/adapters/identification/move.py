"""One goal of the action ``~/move_to`` from its fields to its result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from sysid_msgs.action import MoveTo
from sysid_ros.adapters.identification.arm import RosArm
from sysid_ros.adapters.identification.estimates import RosEstimates
from sysid_ros.adapters.identification.goal import describe_failure
from sysid_ros.adapters.identification.planner import RosPlanner
from sysid_ros.adapters.identification.session import GoalOptions, Session, Suite
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.procedure import (
    IdentificationErrorCode,
    IdentificationFailed,
    ModelPolicy,
    MoveSettings,
    PayloadModel,
    Ports,
    Progress,
    run_move,
)
from sysid_ros.ros.conversions import joint_vector_from_message


class MoveRun:
    """Runs one move. :meth:`run` never raises and always leaves the arm at rest.

    Args:
        suite: The suite.
        options: What the node's parameters say.
        known: What the controller was given last; None where nothing may be assumed of it.
        is_cancelled: Whether the move is to end.
    """

    def __init__(
        self, suite: Suite, options: GoalOptions, known: PayloadModel | None, is_cancelled: Callable[[], bool]
    ):
        self._logger, self._robot, self._monitor = suite.node.get_logger(), suite.robot, suite.monitor
        self._options = options
        self._known = known
        self._is_cancelled = is_cancelled
        session = Session(suite, options, is_cancelled)
        self._arm = RosArm(session, options.settings.strategy == "observe")
        self._ports = Ports(RosPlanner(session), self._arm, RosEstimates(session))
        self._policy: ModelPolicy | None = None

    @property
    def motion_time(self) -> float:
        """How long the arm has moved [s]."""
        return self._arm.motion_time

    @property
    def model(self) -> PayloadModel | None:
        """What the controller has been given."""
        return self._known if self._policy is None else self._policy.in_use

    def run(self, request: MoveTo.Goal, on_progress: Callable[[Progress], None]) -> MoveTo.Result:
        """Run the move to its end."""
        self._monitor.begin(None)
        try:
            policy, wanted = self._prepare(request)
            move = run_move(self._ports, policy, wanted, self._is_cancelled, on_progress)
            return self._result(
                motion_time=move.motion_time, plans=move.plans, smallest_torque_margin=move.smallest_torque_margin
            )
        except IdentificationFailed as failure:
            return self._failure(failure)
        except SysidError as error:
            return self._failure(IdentificationFailed(IdentificationErrorCode.INVALID_GOAL, str(error)))
        except Exception as error:  # noqa: BLE001 - the answer to a goal must not depend on what went wrong
            return self._failure(IdentificationFailed(IdentificationErrorCode.INTERNAL, f"internal error: {error!r}"))
        finally:
            self._monitor.end()

    def _prepare(self, request: MoveTo.Goal) -> tuple[ModelPolicy, MoveSettings]:
        """Use the model the controller was given last, if it was identified and is still there; else the prior."""
        goal = joint_vector_from_message(
            "MoveTo", "goal_position", request.joint_names, request.goal_position, self._robot.joint_names
        )
        self._require_inside(goal)
        known = self._known
        if known is not None and (known.estimate is None or not self._arm.has_model(known)):
            known = None
        wanted = MoveSettings(
            goal,
            request.tolerance or self._options.move_tolerance,
            request.max_motion_time or self._options.move_time,
            forget_payload=known is None,
        )
        if known is not None:
            self._monitor.use_estimates()
        self._policy = ModelPolicy(self._robot, known, may_tighten=False)
        return self._policy, wanted

    def _require_inside(self, goal: NDArray[np.float64]) -> None:
        """Refuse a posture beyond the position limits, before anything moves towards it."""
        limits = self._robot.limits
        for name, value, low, high in zip(self._robot.joint_names, goal, limits.q_lower, limits.q_upper, strict=True):
            if not low <= value <= high:
                raise ParameterOutOfRange(f"goal_position of {name} [rad]", float(value), f"{low:g} to {high:g}")

    def _failure(self, failure: IdentificationFailed) -> MoveTo.Result:
        text = describe_failure(failure)
        if failure.code is IdentificationErrorCode.INCONSISTENT:
            text += ". The next move will be planned with the prior of the payload; identify it to know more"
        self._logger.error(f"{failure.code.name}: {text}")
        return self._result(error_code=int(failure.code), error_text=text, motion_time=self.motion_time)

    def _result(self, **fields: object) -> MoveTo.Result:
        status = self._monitor.status
        position = [] if status is None else np.array(status.reference_position, dtype=float).tolist()
        return MoveTo.Result(position=position, **fields)
