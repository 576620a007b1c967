"""One goal of the node ``identification`` from its fields to its result; knows nothing of how it was sent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sysid_msgs.action import Identify
from sysid_ros.adapters.identification.arm import RosArm
from sysid_ros.adapters.identification.estimates import RosEstimates
from sysid_ros.adapters.identification.files import prepare_folder, write_files
from sysid_ros.adapters.identification.planner import RosPlanner
from sysid_ros.adapters.identification.session import GoalOptions, Session, Suite
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import EstimateStatus
from sysid_ros.core.procedure import (
    Identification,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    ModelPolicy,
    MoveSettings,
    PayloadModel,
    Phase,
    Ports,
    Progress,
    run_identification,
    run_move,
)
from sysid_ros.reports.folders import make_results_directory
from sysid_ros.reports.recordings.recording import RecordingWriter
from sysid_ros.reports.writer import RECORDING
from sysid_ros.ros.conversions import estimate_to_message, inertia_message

_WITH_FILES = (
    Identify.Result.NONE,
    Identify.Result.INCONSISTENT,
    Identify.Result.NO_WINDOWS,
    Identify.Result.NOT_IDENTIFIED,
)
"""Ends of a goal that leave files; all but the first only a report that says why there is no payload."""


class GoalRun:
    """Runs one goal. :meth:`run` never raises and always leaves the arm at rest.

    Args:
        suite: The suite.
        options: What the node's parameters say.
        goal: What is asked for.
        is_cancelled: Whether the goal is to end.
        on_progress: Called with every change.
    """

    def __init__(
        self,
        suite: Suite,
        options: GoalOptions,
        goal: Identify.Goal,
        is_cancelled: Callable[[], bool],
        on_progress: Callable[[Progress], None],
    ):
        self._logger, self._robot, self._monitor = suite.node.get_logger(), suite.robot, suite.monitor
        self._options = options
        self._goal = goal
        self._is_cancelled = is_cancelled
        self._on_progress = on_progress
        self._settings = options.settings
        session = Session(suite, options, is_cancelled)
        self._arm = RosArm(session, options.settings.strategy == "observe")
        self._ports = Ports(RosPlanner(session, int(goal.seed)), self._arm, RosEstimates(session))
        self._policy = ModelPolicy(suite.robot, may_tighten=options.apply_estimate)
        self._folder: Path | None = None

    @property
    def motion_time(self) -> float:
        """How long the arm has moved [s]."""
        return self._arm.motion_time

    @property
    def model(self) -> PayloadModel:
        """What the controller has been given."""
        return self._policy.in_use

    def run(self) -> Identify.Result:
        """Run the goal to its end."""
        self._monitor.begin(None)
        try:
            self._settings = settings_of(self._options.settings, self._goal)
            self._folder = self._make_folder()
            if self._folder is not None and self._options.record:
                self._monitor.begin(RecordingWriter(self._folder / RECORDING))
        except SysidError as error:
            self._monitor.end()
            return self._failure(IdentificationFailed(IdentificationErrorCode.INVALID_GOAL, str(error)))
        start = self._position()
        outcome, result = self._identify()
        result = self._finish(outcome, result)
        if outcome is not None:
            self._return(start)
        return result

    def _make_folder(self) -> Path | None:
        if self._goal.results_directory:
            return prepare_folder(Path(self._goal.results_directory).expanduser())
        if self._options.results_directory is not None:
            return prepare_folder(make_results_directory(Path(self._options.results_directory).expanduser()))
        return None

    def _identify(self) -> tuple[Identification | None, Identify.Result]:
        try:
            outcome = run_identification(
                self._ports, self._policy, self._settings, self._is_cancelled, self._on_progress
            )
            count = len(outcome.plans)
            text = f"writing the results ({outcome.stop_reason})"
            self._on_progress(Progress(Phase.REPORTING, text, 1.0, count, count, outcome.estimate))
            return outcome, self._success(outcome)
        except IdentificationFailed as failure:
            return None, self._failure(failure)
        except Exception as error:  # noqa: BLE001 - the answer to a goal must not depend on what went wrong
            text = f"internal error: {error!r}"
            return None, self._failure(IdentificationFailed(IdentificationErrorCode.INTERNAL, text))

    def _position(self) -> NDArray[np.float64] | None:
        """Where the arm is held, (n,) [rad]; None where nobody says."""
        status = self._monitor.status
        return None if status is None or not status.reference_position else np.array(status.reference_position)

    def _return(self, start: NDArray[np.float64] | None) -> None:
        """Move back to where the arm was: with the prior of another payload it might not even be able to stay here."""
        options = self._options
        is_moved_by_others = self._settings.strategy == "observe"
        if is_moved_by_others or not (options.return_to_start and options.apply_estimate) or start is None:
            return
        self._on_progress(Progress(Phase.REPORTING, "returning to the start", 1.0, 0, 0, self._monitor.estimate))
        policy = ModelPolicy(self._robot, self._policy.in_use, may_tighten=False)
        try:
            wanted = MoveSettings(start, options.move_tolerance, options.move_time)
            run_move(self._ports, policy, wanted, self._is_cancelled)
        except SysidError as error:
            self._logger.warning(f"the arm has not returned to where it was: {error}")

    def _finish(self, outcome: Identification | None, result: Identify.Result) -> Identify.Result:
        """Complete recording and files; where files are missing the goal is no success, but keeps its numbers."""
        faults = []
        try:
            self._monitor.end(outcome.estimate if outcome is not None else None)
        except SysidError as error:
            faults.append(str(error))
        if self._folder is not None:
            result.results_directory = str(self._folder.absolute())
            if result.error_code in _WITH_FILES:
                faults += self._write(self._folder, outcome)
        for fault in faults:
            self._logger.error(fault)
        if faults and outcome is not None and result.error_code == Identify.Result.NONE:
            result.error_code = Identify.Result.RESULTS_NOT_WRITTEN
            is_whole = outcome.estimate.status is EstimateStatus.IDENTIFIED
            what = "identified" if is_whole else "identified in part"
            result.error_text = f"{what}, but {'; '.join(faults)}. What the estimate in this result bounds is good"
        return result

    def _write(self, folder: Path, outcome: Identification | None) -> list[str]:
        records = self._monitor.records
        records.information = self._monitor.information
        try:
            left_out = write_files(folder, self._robot, outcome, records, self._settings)
        except Exception as error:  # noqa: BLE001 - what was identified must still be answered
            return [str(error) if isinstance(error, SysidError) else f"the files were not written: {error!r}"]
        if outcome is not None:
            return list(left_out)
        for reason in left_out:
            self._logger.warning(reason)
        return []

    def _success(self, outcome: Identification) -> Identify.Result:
        estimate, monitor = outcome.estimate, self._monitor
        return Identify.Result(
            error_code=Identify.Result.NONE,
            estimate=estimate_to_message(estimate, monitor.estimate_stamp_ns, monitor.information),
            payload=inertia_message(estimate.values),
            motion_time=outcome.motion_time,
        )

    def _failure(self, failure: IdentificationFailed) -> Identify.Result:
        text = describe_failure(failure)
        self._logger.error(f"{failure.code.name}: {text}")
        result = Identify.Result(error_code=int(failure.code), error_text=text, motion_time=self.motion_time)
        estimate = self._monitor.estimate
        if estimate is not None:
            result.estimate = estimate_to_message(estimate, self._monitor.estimate_stamp_ns, self._monitor.information)
        return result


def describe_failure(failure: IdentificationFailed) -> str:
    """Say what went wrong, and that the arm may still move where nobody knows."""
    unconfirmed = failure.stop_unconfirmed
    return str(failure) if unconfirmed is None else f"{failure}. Watch the arm: {unconfirmed}"


def settings_of(settings: IdentificationSettings, goal: Identify.Goal) -> IdentificationSettings:
    """Return the settings of a goal: the node's, with the fields that the goal gives (not 0).

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
