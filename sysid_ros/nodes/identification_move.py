"""One goal of the action ``~/move_to`` from its fields to its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from sysid_msgs.action import MoveTo
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.procedure import IdentificationErrorCode, IdentificationFailed, Progress, run_move
from sysid_ros.nodes.identification_backend import KnownModel, RosBackend, SuiteClients
from sysid_ros.nodes.identification_watch import SuiteWatch
from sysid_ros.ros.conversions import estimate_from_message, joint_vector_from_message

if TYPE_CHECKING:
    from sysid_ros.nodes.identification import IdentificationParameters


class MoveRun:
    """Runs one move. :meth:`run` never raises and always leaves the arm at rest.

    Args:
        node: The node it belongs to.
        robot: The robot.
        watch: What the node hears.
        clients: The services.
        parameters: Parameters of the node.
        known: What the controller was given last.
        is_cancelled: Whether the move is to end.
    """

    def __init__(
        self,
        node: Node,
        robot: RobotModel,
        watch: SuiteWatch,
        clients: SuiteClients,
        parameters: IdentificationParameters,
        known: KnownModel,
        is_cancelled: Callable[[], bool],
    ):
        self._logger = node.get_logger()
        self._robot = robot
        self._watch = watch
        self._parameters = parameters
        self._known = known
        self._is_cancelled = is_cancelled
        self._uses_model = False
        self._backend = RosBackend(node, robot, watch, clients, parameters, is_cancelled=is_cancelled)

    @property
    def motion_time(self) -> float:
        """How long the arm has moved [s]."""
        return self._backend.motion_time

    @property
    def model(self) -> KnownModel:
        """What the controller has been given."""
        return self._backend.model if self._uses_model else self._known

    def run(self, request: MoveTo.Goal, on_progress: Callable[[Progress], None]) -> MoveTo.Result:
        """Runs the move to its end."""
        values = self._parameters
        self._watch.begin(None)
        try:
            goal = joint_vector_from_message(
                "MoveTo", "goal_position", request.joint_names, request.goal_position, self._robot.joint_names
            )
            self._require_inside(goal)
            tolerance = request.tolerance or values.move_tolerance
            longest = request.max_motion_time or values.move_time
            self._use_model()
            move = run_move(self._backend, goal, tolerance, longest, self._is_cancelled, on_progress)
            return self._result(
                motion_time=move.motion_time, plans=move.parts, smallest_torque_margin=move.smallest_torque_margin
            )
        except IdentificationFailed as failure:
            return self._failure(failure.code, str(failure))
        except SysidError as error:
            return self._failure(IdentificationErrorCode.INVALID_GOAL, str(error))
        except Exception as error:  # noqa: BLE001 - the answer to a goal must not depend on what went wrong
            return self._failure(IdentificationErrorCode.INTERNAL, f"internal error: {error!r}")
        finally:
            self._watch.end()

    def _require_inside(self, goal: NDArray[np.float64]) -> None:
        """Refuses a posture beyond the position limits, before anything moves towards it."""
        limits = self._robot.limits
        for name, value, low, high in zip(self._robot.joint_names, goal, limits.q_lower, limits.q_upper, strict=True):
            if not low <= value <= high:
                raise ParameterOutOfRange(f"goal_position of {name} [rad]", float(value), f"{low:g} to {high:g}")

    def _use_model(self) -> None:
        """Plans with the payload the controller was given last, if it still has it; else with the prior for both."""
        known, status = self._known, self._watch.status
        self._uses_model = True
        is_identified = estimate_from_message(known.estimate) is not None
        if is_identified and status is not None and status.model_box_hash == known.box_hash:
            self._backend.adopt_model(known)
        else:
            self._backend.begin_with_prior()

    def _failure(self, code: IdentificationErrorCode, text: str) -> MoveTo.Result:
        if code == IdentificationErrorCode.INCONSISTENT and self._uses_model:
            text += ". The next move will be planned with the prior of the payload; identify it to know more"
        if self._backend.unrest:
            text += f". Watch the arm: {self._backend.unrest}"
        self._logger.error(f"{code.name}: {text}")
        return self._result(error_code=int(code), error_text=text, motion_time=self.motion_time)

    def _result(self, **fields: object) -> MoveTo.Result:
        status = self._watch.status
        position = [] if status is None else np.array(status.reference_position, dtype=float).tolist()
        return MoveTo.Result(position=position, **fields)
