"""Goals of ``free_flyer_identification``: recording, procedure, files, and a numbered answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sysid_msgs.action import Identify
from sysid_ros.adapters.goals import Goal, ResultParameters
from sysid_ros.core.certification.stop_model import PlanRejected
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.procedure import IdentificationErrorCode, Phase, Progress
from sysid_ros.reports.recordings.recording import RecordingWriter
from sysid_ros.ros.conversions.common import InvalidMessage
from sysid_ros.ros.conversions.estimate import estimate_to_message, inertia_message
from sysid_ros.ros.markers import contents_of
from sysid_ros.ros.parameters import parameter, parameters_from
from sysid_ros.space.adapters.link import FreeFlyerLink
from sysid_ros.space.adapters.messages import FloatingPictures
from sysid_ros.space.core.bounds import InconsistentMomentum
from sysid_ros.space.core.excitation import ExcitationSettings
from sysid_ros.space.core.identification import (
    FloatingProgress,
    FreeFlyerIdentification,
    KnownRobot,
    ObjectIdentification,
    ObjectSettings,
    ProcedureSettings,
    Task,
    known_before,
)
from sysid_ros.space.core.measurements import Assumptions
from sysid_ros.space.core.procedure import identify_free_flyer, identify_object
from sysid_ros.space.core.robot import FreeFlyer
from sysid_ros.space.report import RECORDING, read_known_robot, write_free_flyer, write_held_object


@dataclass(frozen=True)
class FreeFlyerIdentificationParameters(ResultParameters):
    """Parameters of the node ``free_flyer_identification``."""

    model: str = parameter("servicer", read_only=True)
    """Robot: a name from config/space/ or the path of such a YAML file."""
    procedure: ProcedureSettings = parameters_from(ProcedureSettings)
    assumptions: Assumptions = parameters_from(Assumptions)
    held: ObjectSettings = parameters_from(ObjectSettings, prefix="object_")
    known_robot: str = parameter("")
    """Bounds of the robot without its load, an ``estimate.yaml``; empty: of this node's last identification, else the
    ranges in the robot's settings."""
    excitation: ExcitationSettings = parameters_from(ExcitationSettings, prefix="excitation_")
    driver_timeout: float = parameter(30.0, "s", lower=0.1, upper=600.0)
    """How long the driver may be silent."""


class FreeFlyerGoal(Goal):
    """Runs one goal of ``~/identify``: the robot itself.

    Args:
        robot: The robot.
        link: The way to it.
        options: Parameters of the node.
        goal: The fields of the goal.
        is_cancelled: Whether it is to end.
        last: Last identification of the robot; None without one.

    Attributes:
        found: The result; None until then.
    """

    codes = (
        (PlanRejected, IdentificationErrorCode.PLAN_FAILED),
        (InconsistentMomentum, IdentificationErrorCode.INCONSISTENT),
        (InvalidMessage, IdentificationErrorCode.NO_SAMPLES),
        (ParameterOutOfRange, IdentificationErrorCode.NOT_IDENTIFIED),
    )
    _options: FreeFlyerIdentificationParameters

    def __init__(
        self,
        robot: FreeFlyer,
        link: FreeFlyerLink,
        options: FreeFlyerIdentificationParameters,
        goal: Identify.Goal,
        is_cancelled: Callable[[], bool],
        last: FreeFlyerIdentification | None = None,
    ):
        super().__init__(link.logger, options, goal, is_cancelled)
        excitation = replace(options.excitation, seed=int(goal.seed))
        self._task = Task(robot, options.procedure, excitation, options.assumptions)
        self._link, self._last = link, last
        self._recording: RecordingWriter | None = None
        self._pictures = FloatingPictures(robot, self._write_message)
        self.found: FreeFlyerIdentification | ObjectIdentification | None = None

    @property
    def motion_time(self) -> float:
        """How long the robot has moved [s]."""
        return 0.0 if self.found is None else float(sum(part.end - part.begin for part in self.found.parts))

    def record(self, topic: str, kind: str, message: object, stamp_ns: int) -> None:
        """Write a message into the recording, if there is one."""
        if self._recording is not None:
            self._write_message(topic, kind, message, stamp_ns)
            self._pictures.on_message(message, stamp_ns)

    def feedback(self, progress: Progress) -> Identify.Feedback:
        """Convert progress to feedback."""
        feedback: Identify.Feedback = super().feedback(progress)
        held = progress.held if isinstance(progress, FloatingProgress) else None
        if held is not None:
            box, com = held.bounds.box, held.com_box
            feedback.has_estimate, feedback.mass = True, held.mass
            feedback.mass_lower, feedback.mass_upper = float(box.lower[0]), float(box.upper[0])
            feedback.com_lower, feedback.com, feedback.com_upper = com.lower, held.com, com.upper
        return feedback

    def _prepare(self) -> None:
        goal, task = self._goal, self._task
        self._check_target(float(goal.target_mass_width))
        if not np.isfinite(goal.max_motion_time) or goal.max_motion_time < 0.0:
            raise ParameterOutOfRange("max_motion_time [s]", goal.max_motion_time, "0 or more")
        given: dict[str, Any] = {"parts": int(goal.number_of_trajectories)} if goal.number_of_trajectories else {}
        if goal.max_motion_time:
            given["intervals"] = int(goal.max_motion_time / task.excitation.period)
        self._task = replace(task, settings=replace(task.settings, **given))
        self._folder = self._make_folder(goal.results_directory)
        if self._folder is not None and self._options.record:
            self._recording = RecordingWriter(self._folder / RECORDING, {"robot": task.robot.name})

    def _check_target(self, width: float) -> None:
        if width:
            raise ParameterOutOfRange("target_mass_width [kg]", width, "0: it is for objects in the hand")

    def _carry_out(self) -> Identify.Result:
        self._link.is_cancelled = self._is_cancelled
        self._report(Progress(Phase.WAITING, "waiting for the driver", 0.0, 0, 0, None))
        self._link.forget()
        self._link.wait_until_ready()
        found = self.found = self._identify()
        fault = self._end_recording()
        try:
            self._write()
        except SysidError as error:
            fault = str(error)
        if found.inconsistency is not None:
            return self._failure(self._as_failure(found.inconsistency), f". {fault}" if fault else "", **self._fields())
        code = IdentificationErrorCode.RESULTS_NOT_WRITTEN if fault else IdentificationErrorCode.NONE
        return Identify.Result(error_code=int(code), error_text=fault, motion_time=self.motion_time, **self._fields())

    def _identify(self) -> FreeFlyerIdentification | ObjectIdentification:
        return identify_free_flyer(self._task, self._link, self._is_cancelled, self._report)

    def _fields(self) -> dict[str, Any]:
        """Return the fields of the result beside code and motion."""
        return {}

    def _write(self) -> None:
        if self._folder is not None and isinstance(self.found, FreeFlyerIdentification):
            write_free_flyer(self.found, self._folder, self._link.truth)

    def _write_message(self, topic: str, kind: str, message: object, stamp_ns: int) -> None:
        if self._recording is not None:
            self._recording.write(topic, kind, contents_of(message), stamp_ns)

    def _end_recording(self) -> str:
        recording, self._recording = self._recording, None
        try:
            if recording is not None:
                recording.close()
        except SysidError as error:
            return str(error)
        return ""


class HeldObjectGoal(FreeFlyerGoal):
    """Runs one goal of ``~/identify_object``: the load of the robot."""

    found: ObjectIdentification | None

    def _check_target(self, width: float) -> None:
        if not 0.0 <= width < np.inf:
            raise ParameterOutOfRange("target_mass_width [kg]", width, "0 or more")

    def _identify(self) -> ObjectIdentification:
        settings = replace(self._options.held, target_width=float(self._goal.target_mass_width))
        known, is_cancelled = self._known_robot(), self._is_cancelled
        return identify_object(self._task, settings, known, self._link, is_cancelled, self._report)

    def _known_robot(self) -> KnownRobot:
        if self._options.known_robot:
            return read_known_robot(self._options.known_robot, self._task.robot)
        if self._last is not None and self._last.bounds is not None:
            return self._last.known_robot
        return known_before(self._task.robot)

    def _fields(self) -> dict[str, Any]:
        assert self.found is not None
        estimate = self.found.as_estimate()
        fields: dict[str, Any] = {"estimate": estimate_to_message(estimate, 0)}
        return fields | ({"payload": inertia_message(estimate.values)} if np.all(np.isfinite(estimate.values)) else {})

    def _write(self) -> None:
        if self._folder is not None and self.found is not None:
            write_held_object(self.found, self._folder, self._link.truth)
