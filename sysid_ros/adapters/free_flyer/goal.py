"""One goal of ``free_flyer_identification``: folder, recording, procedure, files, and a numbered answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from sysid_msgs.action import Identify
from sysid_ros.adapters.free_flyer.link import DriverSilent, FreeFlyerLink, MotionCancelled, MotionFailed
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.free_floating.excitation import ExcitationSettings
from sysid_ros.core.free_floating.procedure import (
    FreeFlyerIdentification,
    ProcedureSettings,
    Progress,
    Stage,
    identify_free_flyer,
)
from sysid_ros.core.free_floating.regression import NotIdentifiable
from sysid_ros.core.free_floating.robot import FreeFlyer
from sysid_ros.core.free_floating.self_collision import SelfCollision
from sysid_ros.core.trajectories.base import PlanningCancelled
from sysid_ros.drivers.arm import Array
from sysid_ros.reports.free_flyer import ESTIMATE, RECORDING, write_free_flyer
from sysid_ros.reports.recordings.recording import RecordingWriter
from sysid_ros.reports.writer import make_results_directory
from sysid_ros.ros.conversions.common import InvalidMessage

_CODES: tuple[tuple[type[SysidError], int], ...] = (
    (PlanningCancelled, Identify.Result.CANCELED),
    (MotionCancelled, Identify.Result.CANCELED),
    (SelfCollision, Identify.Result.PLAN_FAILED),
    (MotionFailed, Identify.Result.EXECUTION_FAILED),
    (DriverSilent, Identify.Result.DRIVER_NOT_READY),
    (NotIdentifiable, Identify.Result.NOT_IDENTIFIED),
    (InvalidMessage, Identify.Result.NO_SAMPLES),
    (ParameterOutOfRange, Identify.Result.NOT_IDENTIFIED),
)
"""Codes of errors; the first class that fits counts."""

_PHASES = {
    Stage.PLANNING: Identify.Feedback.PHASE_PLANNING,
    Stage.MOVING: Identify.Feedback.PHASE_MOVING,
    Stage.ESTIMATING: Identify.Feedback.PHASE_ESTIMATING,
}


class _InvalidGoal(SysidError):
    """A goal that cannot be carried out."""


class FreeFlyerGoal:
    """One goal from start to end.

    Args:
        robot: The robot.
        link: The way to it.
        procedure: Settings of the procedure.
        excitation: Settings of the searches.
        is_cancelled: Whether it is to end.
        report: Called with every change; the feedback lacks only the time that has passed.

    Attributes:
        identification: What was identified; None until then.
    """

    def __init__(
        self,
        robot: FreeFlyer,
        link: FreeFlyerLink,
        procedure: ProcedureSettings,
        excitation: ExcitationSettings,
        is_cancelled: Callable[[], bool],
        report: Callable[[Identify.Feedback], None],
    ):
        self._robot, self._link, self._procedure, self._excitation = robot, link, procedure, excitation
        self._is_cancelled, self._report = is_cancelled, report
        self._recording: RecordingWriter | None = None
        self.identification: FreeFlyerIdentification | None = None

    def record(self, topic: str, kind: str, message: object, stamp_ns: int) -> None:
        """Write a message into the recording, if there is one."""
        if self._recording is not None:
            self._recording.write(topic, kind, message, stamp_ns)

    def run(
        self, goal: Identify.Goal, root: str, is_recorded: bool, truth: Callable[[], Array | None]
    ) -> Identify.Result:
        """Carry it out.

        Args:
            goal: The goal.
            root: Folder in which to make one for the files, if the goal names none; empty for no files.
            is_recorded: Whether to write a recording with the files.
            truth: The true parameters of a simulated robot (10 B,) as the driver says, None otherwise.
        """
        self._link.is_cancelled = self._is_cancelled
        result, folder = Identify.Result(), None
        try:
            settings = self._settings(goal)
            folder = _folder(goal, root)
            if folder is not None and is_recorded:
                self._recording = RecordingWriter(folder / RECORDING, {"robot": self._robot.name})
            self._report(Identify.Feedback(phase=Identify.Feedback.PHASE_WAITING, text="waiting for the driver"))
            self._link.forget()
            self._link.wait_until_ready()
            self.identification = identify_free_flyer(
                self._robot, self._link, settings, self._excitation, self._is_cancelled, self._tell
            )
            result.motion_time = float(sum(part.end - part.begin for part in self.identification.parts))
        except SysidError as error:
            result.error_code = self._code(error)
            result.error_text = str(error)
        except Exception as error:  # noqa: BLE001 - whatever fails is an answer, not the end of the node
            result.error_code, result.error_text = Identify.Result.INTERNAL, f"internal error: {error!r}"
        finally:
            self._close_recording(result)
        if folder is not None:
            result.results_directory = str(folder)
            self._write(folder, truth(), result)
        return result

    def _settings(self, goal: Identify.Goal) -> ProcedureSettings:
        settings = self._procedure
        if goal.target_mass_width:
            raise _InvalidGoal("target_mass_width is for payloads of arms; allowed here: 0")
        if not np.isfinite(goal.max_motion_time) or goal.max_motion_time < 0.0:
            raise _InvalidGoal(f"max_motion_time [s] is {goal.max_motion_time}; allowed: 0 or more")
        try:
            if goal.max_motion_time:
                settings = replace(settings, intervals=int(goal.max_motion_time / self._excitation.period))
            if goal.number_of_trajectories:
                settings = replace(settings, parts=int(goal.number_of_trajectories))
        except ParameterOutOfRange as error:
            raise _InvalidGoal(str(error)) from error
        return settings

    def _tell(self, progress: Progress) -> None:
        self._report(
            Identify.Feedback(
                phase=_PHASES[progress.stage],
                text=progress.text,
                progress=progress.share,
                trajectory_number=progress.part,
                number_of_trajectories=progress.parts,
            )
        )

    def _close_recording(self, result: Identify.Result) -> None:
        if self._recording is None:
            return
        recording, self._recording = self._recording, None
        try:
            recording.close()
        except SysidError as error:
            if result.error_code == Identify.Result.NONE:
                result.error_code, result.error_text = Identify.Result.RESULTS_NOT_WRITTEN, str(error)

    def _write(self, folder: Path, truth: Array | None, result: Identify.Result) -> None:
        if self.identification is None:
            return
        try:
            write_free_flyer(self.identification, folder, truth)
        except SysidError as error:
            result.error_code, result.error_text = Identify.Result.RESULTS_NOT_WRITTEN, str(error)

    @staticmethod
    def _code(error: SysidError) -> int:
        if isinstance(error, _InvalidGoal):
            return int(Identify.Result.INVALID_GOAL)
        return next((code for kind, code in _CODES if isinstance(error, kind)), int(Identify.Result.INTERNAL))


def _folder(goal: Identify.Goal, root: str) -> Path | None:
    """Make the folder for the files; None where none are wanted."""
    try:
        if goal.results_directory:
            folder = Path(goal.results_directory)
            folder.mkdir(parents=True, exist_ok=True)
            for name in (ESTIMATE, RECORDING):
                if (folder / name).exists():
                    raise _InvalidGoal(f"the results folder {folder} holds the {name} of an earlier goal")
            return folder
        return make_results_directory(root) if root else None
    except OSError as error:
        raise _InvalidGoal(f"the results folder cannot be used: {error.strerror or error}") from error
