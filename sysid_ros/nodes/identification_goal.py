"""One goal of the node ``identification`` from its fields to its result; knows nothing of how it was sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from rclpy.node import Node

from sysid_msgs.action import Identify
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.procedure import (
    Identification,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    Phase,
    Progress,
    run_identification,
    run_move,
)
from sysid_ros.nodes.identification_backend import KnownModel, RosBackend, SuiteClients
from sysid_ros.nodes.identification_files import prepare_folder, write_files
from sysid_ros.nodes.identification_watch import SuiteWatch
from sysid_ros.reports.folders import make_results_directory
from sysid_ros.reports.recordings.recording import RecordingWriter
from sysid_ros.reports.writer import RECORDING
from sysid_ros.ros.conversions import estimate_to_message, inertia_message

if TYPE_CHECKING:
    from sysid_ros.nodes.identification import IdentificationParameters


class GoalRun:
    """Runs one goal. :meth:`run` never raises and always leaves the arm at rest.

    Args:
        node: The node it belongs to.
        robot: The robot.
        watch: What the node hears.
        clients: The services.
        parameters: Parameters of the node.
        goal: What is asked for.
        is_cancelled: Whether the goal is to end.
        on_progress: Called with every change.
    """

    def __init__(
        self,
        node: Node,
        robot: RobotModel,
        watch: SuiteWatch,
        clients: SuiteClients,
        parameters: IdentificationParameters,
        goal: Identify.Goal,
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ):
        self._logger = node.get_logger()
        self._robot = robot
        self._watch = watch
        self._parameters = parameters
        self._goal = goal
        self._is_cancelled = is_cancelled
        self._on_progress = on_progress
        self._backend = RosBackend(node, robot, watch, clients, parameters, int(goal.seed), is_cancelled)
        self._settings = parameters.settings()
        self._folder: Path | None = None

    @property
    def motion_time(self) -> float:
        """How long the arm has moved [s]."""
        return self._backend.motion_time

    @property
    def model(self) -> KnownModel:
        """What the controller has been given."""
        return self._backend.model

    def run(self) -> Identify.Result:
        """Runs the goal to its end."""
        self._watch.begin(None)
        try:
            self._settings = settings_of(self._parameters.settings(), self._goal)
            self._folder = self._make_folder()
            if self._folder is not None and self._parameters.record:
                self._watch.begin(RecordingWriter(self._folder / RECORDING))
        except SysidError as error:
            self._watch.end()
            return self._failure(IdentificationErrorCode.INVALID_GOAL, str(error))
        start = self._position()
        outcome, result = self._identify()
        result = self._finish(outcome, result)
        if outcome is not None:
            self._return(start)
        return result

    def _make_folder(self) -> Path | None:
        if self._goal.results_directory:
            return prepare_folder(Path(self._goal.results_directory).expanduser())
        if self._parameters.results_directory:
            return prepare_folder(make_results_directory(Path(self._parameters.results_directory).expanduser()))
        return None

    def _identify(self) -> tuple[Identification | None, Identify.Result]:
        try:
            outcome = run_identification(self._backend, self._settings, self._is_cancelled, self._on_progress)
            count = len(outcome.motions)
            text = f"writing the results ({outcome.stop_reason})"
            self._on_progress(Progress(Phase.REPORTING, text, 1.0, count, count, outcome.estimate))
            if self._parameters.apply_estimate:
                self._backend.apply_final_estimate(outcome.estimate)
            return outcome, self._success(outcome)
        except IdentificationFailed as failure:
            return None, self._failure(failure.code, str(failure))
        except Exception as error:  # noqa: BLE001 - the answer to a goal must not depend on what went wrong
            return None, self._failure(IdentificationErrorCode.INTERNAL, f"internal error: {error!r}")

    def _position(self) -> NDArray[np.float64] | None:
        """Where the arm is held, (n,) [rad]; None where nobody says."""
        status = self._watch.status
        return None if status is None or not status.reference_position else np.array(status.reference_position)

    def _return(self, start: NDArray[np.float64] | None) -> None:
        """Moves back to where the arm was: with the prior of another payload it might not even be able to stay here."""
        values, backend = self._parameters, self._backend
        is_moved_by_others = self._settings.strategy == "observe"
        if is_moved_by_others or not (values.return_to_start and values.apply_estimate) or start is None:
            return
        self._on_progress(Progress(Phase.REPORTING, "returning to the start", 1.0, 0, 0, self._watch.estimate))
        backend.adopt_model(backend.model)
        try:
            run_move(backend, start, values.move_tolerance, values.move_time, self._is_cancelled)
        except SysidError as error:
            self._logger.warning(f"the arm has not returned to where it was: {error}")

    def _finish(self, outcome: Identification | None, result: Identify.Result) -> Identify.Result:
        """Completes recording and files; where files are missing the goal is no success, but keeps its numbers."""
        faults = []
        try:
            self._watch.end(outcome.estimate if outcome is not None else None)
        except SysidError as error:
            faults.append(str(error))
        if self._folder is not None:
            result.results_directory = str(self._folder.absolute())
            if result.error_code in (Identify.Result.NONE, Identify.Result.INCONSISTENT):
                faults += self._write(outcome)
        for fault in faults:
            self._logger.error(fault)
        if faults and result.error_code == Identify.Result.NONE:
            result.error_code = Identify.Result.RESULTS_NOT_WRITTEN
            result.error_text = f"identified, but {'; '.join(faults)}. The estimate in this result is good"
        return result

    def _write(self, outcome: Identification | None) -> list[str]:
        records = self._watch.records
        records.information = self._watch.information
        try:
            left_out = write_files(self._folder, self._robot, outcome, records, self._settings)
        except Exception as error:  # noqa: BLE001 - what was identified must still be answered
            return [str(error) if isinstance(error, SysidError) else f"the files were not written: {error!r}"]
        for reason in left_out:
            self._logger.warning(reason)
        return []

    def _success(self, outcome: Identification) -> Identify.Result:
        estimate, watch = outcome.estimate, self._watch
        return Identify.Result(
            error_code=Identify.Result.NONE,
            estimate=estimate_to_message(estimate, watch.estimate_stamp_ns, watch.information),
            payload=inertia_message(estimate.values),
            motion_time=outcome.motion_time,
        )

    def _failure(self, code: IdentificationErrorCode, text: str) -> Identify.Result:
        if self._backend.unrest:
            text += f". Watch the arm: {self._backend.unrest}"
        self._logger.error(f"{code.name}: {text}")
        result = Identify.Result(error_code=int(code), error_text=text, motion_time=self.motion_time)
        estimate = self._watch.estimate
        if estimate is not None:
            result.estimate = estimate_to_message(estimate, self._watch.estimate_stamp_ns, self._watch.information)
        return result


def settings_of(settings: IdentificationSettings, goal: Identify.Goal) -> IdentificationSettings:
    """The settings of a goal: the node's, with the fields that the goal gives (not 0).

    A goal that allows less motion than one trajectory takes gets a shorter trajectory.

    Raises:
        ParameterOutOfRange: A field is out of range.
    """
    given = {
        "max_motion_time": goal.max_motion_time,
        "target_mass_width": goal.target_mass_width,
        "trajectories": int(goal.number_of_trajectories),
    }
    given = {name: value for name, value in given.items() if value != 0}
    longest = given.get("max_motion_time", settings.max_motion_time)
    if 0.0 < longest < settings.trajectory_duration:
        given["trajectory_duration"] = longest
    return replace(settings, **given)
