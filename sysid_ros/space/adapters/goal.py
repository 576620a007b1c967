"""One goal of ``free_flyer_identification``: folder, recording, procedure, files, and a numbered answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from sysid_msgs.action import Identify
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.procedure.types import IdentificationErrorCode, IdentificationFailed
from sysid_ros.reports.folders import make_results_directory
from sysid_ros.reports.recordings.recording import RecordingWriter
from sysid_ros.reports.writer import folder_below
from sysid_ros.ros.conversions.common import InvalidMessage
from sysid_ros.ros.conversions.estimate import estimate_to_message, inertia_message
from sysid_ros.ros.transforms import contents_of
from sysid_ros.space.adapters.link import FreeFlyerLink
from sysid_ros.space.adapters.pictures import FloatingPictures
from sysid_ros.space.core.bounds import InconsistentMomentum
from sysid_ros.space.core.identification import (
    FreeFlyerIdentification,
    KnownRobot,
    ObjectIdentification,
    ObjectSettings,
    Progress,
    Stage,
    Task,
)
from sysid_ros.space.core.procedure import identify_free_flyer, identify_object
from sysid_ros.space.report import ESTIMATE, RECORDING, SimulationTruth, write_free_flyer, write_held_object

_CODES: tuple[tuple[type[SysidError], int], ...] = (
    (Cancelled, Identify.Result.CANCELED),
    (PlanRejected, Identify.Result.PLAN_FAILED),
    (InconsistentMomentum, Identify.Result.INCONSISTENT),
    (InvalidMessage, Identify.Result.NO_SAMPLES),
    (ParameterOutOfRange, Identify.Result.NOT_IDENTIFIED),
)
"""Codes of errors; the first class that fits counts."""

_PHASES = {
    Stage.PLANNING: Identify.Feedback.PHASE_PLANNING,
    Stage.MOVING: Identify.Feedback.PHASE_MOVING,
    Stage.ESTIMATING: Identify.Feedback.PHASE_ESTIMATING,
    Stage.BOUNDING: Identify.Feedback.PHASE_ESTIMATING,
}


def _invalid_goal(text: str) -> IdentificationFailed:
    return IdentificationFailed(IdentificationErrorCode.INVALID_GOAL, text)


@dataclass(frozen=True)
class GoalFiles:
    """Place and content of the files beside the estimate.

    Attributes:
        root: Folder below which they lie.
        default: Folder below it in which to make one, if the goal names none; empty for no files.
        is_recorded: Whether to write a recording with them.
        truth: Returns the truth of a simulated robot, from its driver; None of a real one.
    """

    root: str
    default: str
    is_recorded: bool
    truth: Callable[[], SimulationTruth | None]


class FreeFlyerGoal:
    """One goal from start to end.

    Args:
        task: The identification.
        link: The way to the robot.
        files: Files of the result.
        is_cancelled: Whether it is cancelled.
        report: Called with every change; the feedback lacks only the elapsed time.

    Attributes:
        identification: Result for the robot; None until then.
        held: Result for an object in its hand; None until then.
    """

    def __init__(
        self,
        task: Task,
        link: FreeFlyerLink,
        files: GoalFiles,
        is_cancelled: Callable[[], bool],
        report: Callable[[Identify.Feedback], None],
    ):
        self._task, self._link, self._files = task, link, files
        self._is_cancelled, self._report = is_cancelled, report
        self._recording: RecordingWriter | None = None
        self._pictures = FloatingPictures(task.robot, self._write_message)
        self.identification: FreeFlyerIdentification | None = None
        self.held: ObjectIdentification | None = None

    def record(self, topic: str, kind: str, message: object, stamp_ns: int) -> None:
        """Write a message into the recording, if there is one."""
        if self._recording is not None:
            self._write_message(topic, kind, message, stamp_ns)
            self._pictures.on_message(message, stamp_ns)

    def _write_message(self, topic: str, kind: str, message: object, stamp_ns: int) -> None:
        if self._recording is not None:
            self._recording.write(topic, kind, contents_of(message), stamp_ns)

    def identify(self, goal: Identify.Goal) -> Identify.Result:
        """Identify the robot."""

        def carry_out(result: Identify.Result) -> None:
            if goal.target_mass_width:
                raise _invalid_goal("target_mass_width is for objects in the hand; allowed here: 0")
            found = identify_free_flyer(self._task_of(goal), self._link, self._is_cancelled, self._tell)
            self.identification = found
            result.motion_time = float(sum(part.end - part.begin for part in found.parts))
            if found.inconsistency is not None:
                raise found.inconsistency

        return self._run(goal, carry_out)

    def identify_object(
        self, goal: Identify.Goal, settings: ObjectSettings, known_robot: Callable[[], KnownRobot]
    ) -> Identify.Result:
        """Identify the object in the hand, for a range of objects; ``known_robot`` returns the robot without it."""

        def carry_out(result: Identify.Result) -> None:
            if not np.isfinite(goal.target_mass_width) or goal.target_mass_width < 0.0:
                raise _invalid_goal(f"target_mass_width [kg] is {goal.target_mass_width}; expected 0 or more")
            wanted = replace(settings, target_width=float(goal.target_mass_width))
            held = identify_object(
                self._task_of(goal), wanted, known_robot(), self._link, self._is_cancelled, self._tell
            )
            self.held = held
            result.motion_time = float(sum(part.end - part.begin for part in held.parts))
            estimate = held.as_estimate()
            result.estimate = estimate_to_message(estimate, 0)
            if np.all(np.isfinite(estimate.values)):
                result.payload = inertia_message(estimate.values)
            if held.inconsistency is not None:
                raise held.inconsistency

        return self._run(goal, carry_out)

    def _run(self, goal: Identify.Goal, carry_out: Callable[[Identify.Result], None]) -> Identify.Result:
        self._link.is_cancelled = self._is_cancelled
        result, folder = Identify.Result(), None
        try:
            self._task_of(goal)
            folder = _folder(goal, self._files)
            if folder is not None and self._files.is_recorded:
                self._recording = RecordingWriter(folder / RECORDING, {"robot": self._task.robot.name})
            self._report(Identify.Feedback(phase=Identify.Feedback.PHASE_WAITING, text="waiting for the driver"))
            self._link.forget()
            self._link.wait_until_ready()
            carry_out(result)
        except SysidError as error:
            result.error_code = self._code(error)
            result.error_text = str(error)
        except Exception as error:  # noqa: BLE001 - a failure is an answer, not the end of the node
            result.error_code, result.error_text = Identify.Result.INTERNAL, f"internal error: {error!r}"
        finally:
            self._close_recording(result)
        if folder is not None:
            result.results_directory = str(folder)
            self._write(folder, result)
        return result

    def _task_of(self, goal: Identify.Goal) -> Task:
        settings = self._task.settings
        if not np.isfinite(goal.max_motion_time) or goal.max_motion_time < 0.0:
            raise _invalid_goal(f"max_motion_time [s] is {goal.max_motion_time}; expected 0 or more")
        try:
            if goal.max_motion_time:
                intervals = int(goal.max_motion_time / self._task.excitation.period)
                settings = replace(settings, intervals=intervals)
            if goal.number_of_trajectories:
                settings = replace(settings, parts=int(goal.number_of_trajectories))
        except ParameterOutOfRange as error:
            raise _invalid_goal(str(error)) from error
        return replace(self._task, settings=settings)

    def _tell(self, progress: Progress) -> None:
        feedback = Identify.Feedback(
            phase=_PHASES[progress.stage],
            text=progress.text,
            progress=progress.share,
            trajectory_number=progress.part,
            number_of_trajectories=progress.parts,
        )
        if progress.held is not None:
            held, box, com = progress.held, progress.held.bounds.box, progress.held.com_box
            feedback.has_estimate = True
            feedback.mass_lower, feedback.mass, feedback.mass_upper = (
                float(box.lower[0]),
                held.mass,
                float(box.upper[0]),
            )
            feedback.com_lower, feedback.com, feedback.com_upper = com.lower, held.com, com.upper
        self._report(feedback)

    def _close_recording(self, result: Identify.Result) -> None:
        if self._recording is None:
            return
        recording, self._recording = self._recording, None
        try:
            recording.close()
        except SysidError as error:
            if result.error_code == Identify.Result.NONE:
                result.error_code, result.error_text = Identify.Result.RESULTS_NOT_WRITTEN, str(error)

    def _write(self, folder: Path, result: Identify.Result) -> None:
        try:
            if self.identification is not None:
                write_free_flyer(self.identification, folder, self._files.truth())
            if self.held is not None:
                write_held_object(self.held, folder, self._files.truth())
        except SysidError as error:
            result.error_code, result.error_text = Identify.Result.RESULTS_NOT_WRITTEN, str(error)

    @staticmethod
    def _code(error: SysidError) -> int:
        if isinstance(error, IdentificationFailed):
            return error.code
        return next((code for kind, code in _CODES if isinstance(error, kind)), int(Identify.Result.INTERNAL))


def _folder(goal: Identify.Goal, files: GoalFiles) -> Path | None:
    try:
        if goal.results_directory:
            folder = folder_below(files.root, goal.results_directory)
            folder.mkdir(parents=True, exist_ok=True)
            for name in (ESTIMATE, RECORDING):
                if (folder / name).exists():
                    raise _invalid_goal(f"the results folder {folder} holds the {name} of an earlier goal")
            return folder
        return make_results_directory(folder_below(files.root, files.default)) if files.default else None
    except ParameterOutOfRange as error:
        raise _invalid_goal(str(error)) from error
    except OSError as error:
        raise _invalid_goal(f"the results folder cannot be used: {error.strerror or error}") from error
