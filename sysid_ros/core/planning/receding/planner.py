"""The receding-horizon planner: searches with sampled constraints, returns only what has been bounded and verified."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sysid_ros.core.errors import ParameterOutOfRange
from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.base import State, joint_vector
from sysid_ros.core.planning.receding.candidates import Candidates
from sysid_ros.core.planning.receding.certifier import Bound, CallTimes, Certifier, Verify
from sysid_ros.core.planning.receding.margins import AssumedErrors
from sysid_ros.core.planning.receding.outcome import PlanOutcome
from sysid_ros.core.planning.receding.problem import PlannerModel, PlanRequest
from sysid_ros.core.planning.receding.quadratic import StepProblem
from sysid_ros.core.planning.receding.run import Memory, PlanningRun
from sysid_ros.core.planning.receding.search import PENALTY, ROWS
from sysid_ros.core.planning.receding.settings import RecedingSettings
from sysid_ros.core.planning.scene import Scene

Array = NDArray[np.float64]


class RecedingPlanner:
    """Plans the next motion of a receding horizon, SAFE-ID (28).

    Not safe to share between threads. It remembers how long the calls took, the last tracking errors and the last end
    position, to start the next search with; :meth:`forget` makes it plan as if it were new.

    Args:
        robot: The arm.
        settings: What is wanted.

    Raises:
        ModelError: The arm branches.
    """

    def __init__(self, robot: RobotModel, settings: RecedingSettings | None = None):
        self._robot = robot
        self._settings = settings or RecedingSettings()
        self._model = PlannerModel(robot, self._settings)
        self._step_problem = StepProblem(robot.n, 2 * ROWS, PENALTY)
        self._times = [CallTimes(0.5 * self._settings.call_time) for _ in range(2)]
        self.forget()

    @property
    def settings(self) -> RecedingSettings:
        """The settings."""
        return self._settings

    def forget(self) -> None:
        """Forgets what earlier plans have taught about tracking errors and good ends."""
        self._memory = Memory(AssumedErrors.guess(self._robot.limits))

    def plan(
        self,
        start: State,
        information: ArrayLike,
        boxes: tuple[Box, Box],
        payload_nominal: ArrayLike,
        scene: Scene,
        bound: Bound,
        verify: Verify,
        deadline: float,
        is_cancelled: Callable[[], bool] = lambda: False,
        *,
        goal: ArrayLike | None = None,
        is_last: bool = False,
    ) -> PlanOutcome:
        """Plans a motion that starts exactly in a given state and ends at rest.

        Args:
            start: Position [rad], velocity [rad/s] and acceleration [rad/s^2] at the start, each (n,).
            information: Gram matrix of the windows collected so far, (10, 10), as ``StreamingEstimator.information``.
            boxes: Boxes of the parameters of arm (14 n,) and payload (10,).
            payload_nominal: Nominal payload, (10,).
            scene: What surrounds the arm and what it carries.
            bound: Gives the tracking errors of a motion, or raises an error of this package.
            verify: Proves a motion safe with these errors, or raises :class:`PlanRejected`.
            deadline: Time of ``time.monotonic()`` by which to return [s]. No call is begun that, as long as the longest
                of late, would end after it; a call that takes longer than ever before is not interrupted.
            is_cancelled: Looked at between steps.
            goal: Posture to get to, (n,) [rad]; the cost is then the squared distance of the end from it.
            is_last: Whether no plan will follow: all of the plan counts, and nothing must be able to go on from it.

        Returns:
            The plan, or the reason why there is none.

        Raises:
            PlanningCancelled: ``is_cancelled`` said so.
            InvalidTrajectory: A vector has the wrong length or is not finite.
            ParameterOutOfRange: ``information`` is not a finite (10, 10) Gram matrix, or ``bound`` returned no errors.
        """
        n = self._robot.n
        units = ("position [rad]", "velocity [rad/s]", "acceleration [rad/s^2]")
        request = PlanRequest(
            tuple(joint_vector(f"start {unit}", part, n) for unit, part in zip(units, start, strict=True)),
            _checked_information(information),
            boxes,
            np.asarray(payload_nominal, dtype=float),
            scene,
            None if goal is None else joint_vector("goal [rad]", goal, n),
            is_last,
        )
        self._model.torque.set_boxes(*boxes)
        certifier = Certifier(bound, verify, *self._times)
        candidates = Candidates(self._model, self._step_problem, request, certifier, deadline, is_cancelled)
        return PlanningRun(candidates, self._memory).run()


def _checked_information(information: ArrayLike) -> Array:
    matrix = np.array(information, dtype=float)
    if matrix.shape != (10, 10) or not np.all(np.isfinite(matrix)):
        raise ParameterOutOfRange("information", f"an array of shape {matrix.shape}", "a finite (10, 10) Gram matrix")
    matrix = 0.5 * (matrix + matrix.T)
    values = np.linalg.eigvalsh(matrix)
    if values[0] < -1e-9 * max(values[-1], 1e-12):
        raise ParameterOutOfRange("smallest eigenvalue of information", float(values[0]), "0 or more (a Gram matrix)")
    return matrix
