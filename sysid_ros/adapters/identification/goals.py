"""Goals of the node ``identification`` from their fields to their results, independent of actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from geometry_msgs.msg import InertiaStamped
from numpy.typing import NDArray

from sysid_msgs.action import Identify, MoveTo
from sysid_msgs.msg import ParameterEstimate as EstimateMessage
from sysid_ros.adapters.goals import Goal
from sysid_ros.adapters.identification.arm import RosArm
from sysid_ros.adapters.identification.monitor import NOTHING, Stated
from sysid_ros.adapters.identification.results import (
    Evidence,
    add_evidence,
    ask_settings,
    find_evidence,
    payload_message,
    write_files,
)
from sysid_ros.adapters.identification.session import IdentificationParameters, RosEstimates, RosPlanner, Session, Suite
from sysid_ros.core.common.errors import ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.calibration import (
    CalibrationInconsistent,
    CalibrationShortOfData,
    empty_hand,
    with_stated_mass,
)
from sysid_ros.core.estimation.parameters.estimate import EstimateStatus, ParameterEstimate
from sysid_ros.core.procedure import (
    EmptyHandPolicy,
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
    build_procedure,
    end_tare,
    run_identification,
    run_move,
)
from sysid_ros.reports.payload import bound_mass_and_com, exported_payload
from sysid_ros.reports.recordings.recording import RECORDING, RecordingWriter
from sysid_ros.ros.conversions.common import joint_vector_from_message, message_of
from sysid_ros.ros.conversions.estimate import estimate_to_message, inertia_message

_WITH_FILES = (
    Identify.Result.NONE,
    Identify.Result.INCONSISTENT,
    Identify.Result.NO_WINDOWS,
    Identify.Result.NOT_IDENTIFIED,
)
"""Ends of a goal that leave files; all but the first only a report that says why there is no payload."""


_KNOWN_SO_FAR = (Identify.Result.CANCELED, Identify.Result.PLAN_FAILED, Identify.Result.NOT_IDENTIFIED)
"""Ends of a goal after which its knowledge of the payload still holds."""
_SAMPLES_SECONDS = 5.0
"""How long samples of the last estimate may take to come [s]."""


class GoalBase(Goal):
    """Common base of the goals of the suite.

    Attributes:
        payload: The payload for others, after a success that knows mass, CoM and inertia; None before, and without.
    """

    codes = (
        (CalibrationInconsistent, IdentificationErrorCode.INCONSISTENT),
        (CalibrationShortOfData, IdentificationErrorCode.NO_WINDOWS),
    )
    _options: IdentificationParameters

    def __init__(
        self,
        suite: Suite,
        options: IdentificationParameters,
        goal: Any,
        is_cancelled: Callable[[], bool],
        seed: int = 0,
        stated: Stated = NOTHING,
    ):
        super().__init__(suite.node.get_logger(), options, goal, is_cancelled)
        self._robot, self._monitor = suite.robot, suite.monitor
        self._session = session = Session(suite, options, is_cancelled)
        self._arm = RosArm(session, options.is_moved_by_others)
        self._planner = RosPlanner(session, seed)
        self._ports = Ports(self._planner, self._arm, RosEstimates(session, stated))
        self.payload: InertiaStamped | None = None

    @property
    def motion_time(self) -> float:
        """How long the arm has moved [s]."""
        return self._arm.motion_time

    @property
    def model(self) -> PayloadModel | None:
        """The model of the controller that the next move may assume; None: the hand may hold something else then."""
        return None

    def run(self, on_progress: Callable[[Progress], None]) -> Any:
        """See :class:`Goal`."""
        self._monitor.begin(None)
        result = super().run(on_progress)
        # None after inconsistent data, so that the next move uses the prior.
        estimate = self._monitor.estimate
        self._monitor.known_model = self.model if estimate is None or estimate.is_consistent else None
        return result

    def _say(self, text: str, phase: Phase = Phase.REPORTING) -> None:
        """Report a step after the motion."""
        self._report(Progress(phase, text, 1.0, 0, 0, self._monitor.estimate))

    def _record(self, **metadata: str) -> None:
        if self._folder is not None and self._options.record:
            self._monitor.begin(RecordingWriter(self._folder / RECORDING, metadata))

    def _end_recording(self, final: ParameterEstimate | None = None) -> str:
        """Complete the recording; return the fault, in words."""
        try:
            self._monitor.end(final)
        except SysidError as error:
            return str(error)
        return ""


class GoalRun(GoalBase):
    """Runs one goal of ``~/identify``.

    Attributes:
        name: Name of the action.
    """

    name: ClassVar[str] = "identify"

    def __init__(
        self, suite: Suite, options: IdentificationParameters, goal: Identify.Goal, is_cancelled: Callable[[], bool]
    ):
        stated = Stated(goal.gripper, goal.mass, goal.mass_tolerance)
        super().__init__(suite, options, goal, is_cancelled, int(goal.seed), stated)
        self._settings = options.procedure
        self._policy: ModelPolicy = ModelPolicy(suite.robot, may_tighten=options.apply_estimate)

    @property
    def model(self) -> PayloadModel:
        """The model of the controller."""
        return self._policy.in_use

    def _prepare(self, **metadata: str) -> None:
        goal = self._goal
        self._settings = settings_of(self._options.settings_of(self.name), goal)
        self._robot.gripper_state(goal.gripper)
        self._robot = with_stated_mass(self._robot, goal.mass, goal.mass_tolerance)
        self._folder = self._make_folder(goal.results_directory)
        self._record(**metadata)

    def _carry_out(self) -> Identify.Result:
        start = self._position()
        outcome, result = self._identify()
        result = self._finish(outcome, result)
        if outcome is not None:
            stamp_ns, prefix = self._monitor.estimate_stamp_ns, self._options.tf_prefix
            self.payload = payload_message(self._robot, outcome.estimate, stamp_ns, prefix)
        if result.error_code in _KNOWN_SO_FAR:
            result.error_text += self._way_back(start)
        if outcome is not None and self._options.return_to_start and self._can_return and start is not None:
            self._return(start)
        return result

    def feedback(self, progress: Progress) -> Identify.Feedback:
        """Convert progress to feedback."""
        feedback: Identify.Feedback = super().feedback(progress)
        estimate = progress.estimate
        if estimate is not None and estimate.is_consistent:
            feedback.has_estimate, feedback.doubt = True, estimate.doubt
            mass, com = bound_mass_and_com(self._robot, estimate)
            feedback.mass_lower, feedback.mass, feedback.mass_upper = map(float, (mass.lower, mass.values, mass.upper))
            feedback.com_lower, feedback.com, feedback.com_upper = com.lower, com.values, com.upper
        return feedback

    def _identify(self) -> tuple[Identification | None, Identify.Result]:
        try:
            outcome = run_identification(self._ports, self._policy, self._settings, self._is_cancelled, self._report)
            count = len(outcome.plans)
            text = f"writing the results ({outcome.stop_reason})"
            self._report(Progress(Phase.REPORTING, text, 1.0, count, count, outcome.estimate))
            return outcome, self._success(outcome)
        except Exception as error:  # noqa: BLE001 - a goal is answered after any error
            return None, self._failure(self._as_failure(error))

    def _position(self) -> NDArray[np.float64] | None:
        """Posture in which the arm is held, (n,) [rad]; None if unknown."""
        status = self._monitor.status
        return None if status is None or not status.reference_position else np.array(status.reference_position)

    def _way_back(self, start: NDArray[np.float64] | None) -> str:
        """Offer the way back while the payload is known: the prior may not even allow the arm to be held here."""
        now = self._position()
        if start is None or now is None or self._policy.in_use.estimate is None or self._options.is_moved_by_others:
            return ""
        far = float(np.abs(now - start).max())
        if far <= self._options.move_tolerance:
            return ""
        place = np.array2string(start, precision=3, separator=", ", suppress_small=True)
        return (
            f". The arm rests {far:.2f} rad from where it began. Until another goal begins ~/move_to takes it back "
            f"with the bounds of the payload so far, goal_position: {place}"
        )

    @property
    def _can_return(self) -> bool:
        return self._options.apply_estimate and not self._options.is_moved_by_others

    def _return(self, start: NDArray[np.float64]) -> None:
        """Move back to where the arm was: with the prior of another payload it might not even be able to stay here."""
        options, now = self._options, self._position()
        if now is not None and np.abs(now - start).max() <= options.move_tolerance:
            return
        self._say("returning to the start")
        policy = ModelPolicy(self._robot, self._policy.in_use, may_tighten=False)
        try:
            wanted = MoveSettings(start, options.move_tolerance, options.move_time)
            run_move(self._ports, policy, wanted, self._is_cancelled)
        except SysidError as error:
            self._logger.warning(f"the arm has not returned to where it was: {error}")

    def _find_evidence(self, result: Identify.Result) -> Evidence:
        """Analyse the samples once more: causes of an alarm, or the statistical interval; the arm rests."""
        monitor = self._monitor
        if result.error_code not in (Identify.Result.NONE, Identify.Result.INCONSISTENT) or monitor.estimate is None:
            return Evidence()
        is_alarm = result.error_code == Identify.Result.INCONSISTENT
        text = "looking for what could be wrong" if is_alarm else "computing the statistical interval"
        self._say(text)
        # The estimator has samples of its own: on a busy machine its estimate is here before they are.
        wanted = monitor.estimate_stamp_ns
        try:
            if not self._session.wait_until(lambda: monitor.sample_stamp_ns >= wanted, _SAMPLES_SECONDS):
                self._logger.warning(f"not all samples of the estimate came within {_SAMPLES_SECONDS:g} s")
            settings = ask_settings(self._session)
            if settings is None:
                self._logger.warning(f"the estimator does not report its settings; {text} without them")
            else:
                settings = replace(settings, gripper=monitor.records.gripper)
            estimate, records = monitor.estimate, monitor.records
            return find_evidence(self._robot, settings, estimate, records, monitor.tare, self._is_cancelled)
        except Exception as error:  # noqa: BLE001 - the identified payload must still be returned
            self._logger.warning(f"nothing was found by {text}: {error!r}")
            return Evidence()

    def _finish(self, outcome: Identification | None, result: Identify.Result) -> Identify.Result:
        """Complete recording and files; where files are missing the goal is no success, but keeps its numbers."""
        evidence = self._find_evidence(result)
        add_evidence(result, evidence)
        faults = list(filter(None, [self._end_recording(None if outcome is None else outcome.estimate)]))
        if self._folder is not None and result.error_code in _WITH_FILES:
            self._say("writing the files")
            faults += self._write(self._folder, outcome, evidence)
        is_whole = outcome is not None and outcome.estimate.status is EstimateStatus.IDENTIFIED
        for fault in faults:
            if outcome is None or is_whole:
                self._logger.error(fault)
            else:  # unknown quantities go into no file
                self._logger.warning(fault)
        if faults and outcome is not None and result.error_code == Identify.Result.NONE:
            result.error_code = Identify.Result.RESULTS_NOT_WRITTEN
            what = "identified" if is_whole else "identified in part"
            result.error_text = f"{what}, but {'; '.join(faults)}. The estimate in this result is good"
        return result

    def _write(self, folder: Path, outcome: Identification | None, evidence: Evidence) -> list[str]:
        records = self._monitor.records
        records.information = self._monitor.information
        try:
            left_out = write_files(folder, self._robot, outcome, records, self._settings, evidence)
        except Exception as error:  # noqa: BLE001 - the identified payload must still be returned
            return [str(error) if isinstance(error, SysidError) else f"the files were not written: {error!r}"]
        if outcome is not None:
            return list(left_out)
        for reason in left_out:
            self._logger.warning(reason)
        return []

    def _success(self, outcome: Identification) -> Identify.Result:
        return Identify.Result(
            error_code=Identify.Result.NONE,
            estimate=self._message(outcome.estimate),
            payload=inertia_message(exported_payload(self._robot, outcome.estimate).values),
            motion_time=outcome.motion_time,
            tare=self._monitor.records.tare,
        )

    def _failure(self, failure: IdentificationFailed, advice: str = "", **fields: Any) -> Identify.Result:
        estimate = self._monitor.estimate
        known = {} if estimate is None else {"estimate": self._message(estimate)}
        return super()._failure(failure, advice, **fields, **known)

    def _message(self, estimate: ParameterEstimate) -> EstimateMessage:
        monitor = self._monitor
        message = estimate_to_message(estimate, monitor.estimate_stamp_ns, monitor.information)
        message.gripper = monitor.records.gripper
        message.stated_mass, message.stated_mass_tolerance = monitor.stated_mass
        return message


class WeighRun(GoalRun):
    """Runs one goal of ``~/weigh``: like ``~/identify``, by slow motions through a few postures and back."""

    name = "weigh"


class TareRun(GoalRun):
    """Runs one goal of ``~/tare``: like ``~/weigh``, with the empty hand, and the estimator keeps the samples."""

    name = "tare"

    def _prepare(self, **metadata: str) -> None:
        if self._goal.mass or self._goal.mass_tolerance:
            raise ParameterOutOfRange("mass [kg]", self._goal.mass, "0: a tare is with the empty hand")
        super()._prepare(load=empty_hand().name, **metadata)
        self._policy = EmptyHandPolicy(self._robot, self._options.apply_estimate)

    def _carry_out(self) -> Identify.Result:
        self._arm.wait_until_ready()
        start = self._position()
        done = build_procedure(self._ports, self._policy, self._settings, self._is_cancelled, self._report).tare()
        if self._can_return and start is not None:
            self._return(start)
        self._say("evaluating the tare", Phase.ESTIMATING)
        fault = self._end_recording()  # it has the samples that are evaluated
        end_tare(self._ports, self._policy)
        result = Identify.Result(motion_time=done.motion_time, tare=self._monitor.records.tare)
        if fault:
            result.error_code = Identify.Result.RESULTS_NOT_WRITTEN
            result.error_text = f"the tare is good, but {fault}"
        return result


class MoveRun(GoalBase):
    """Runs one goal of ``~/move_to``, with the model the controller was given last, if that may be assumed."""

    action = MoveTo
    unforeseen = IdentificationErrorCode.INVALID_GOAL

    def __init__(
        self, suite: Suite, options: IdentificationParameters, goal: MoveTo.Goal, is_cancelled: Callable[[], bool]
    ):
        super().__init__(suite, options, goal, is_cancelled)
        self._known: PayloadModel | None = suite.monitor.known_model
        self._policy: ModelPolicy | None = None

    @property
    def model(self) -> PayloadModel | None:
        """The model of the controller."""
        return self._known if self._policy is None else self._policy.in_use

    def _prepare(self) -> None:
        """Use the model the controller was given last, if it was identified and is still there; else the prior."""
        goal, options, names = self._goal, self._options, self._robot.joint_names
        posture = joint_vector_from_message("MoveTo", "goal_position", goal.joint_names, goal.goal_position, names)
        self._require_inside(posture)
        known = self._known
        if known is not None and (known.estimate is None or not self._arm.has_model(known)):
            known = None
        tolerance, longest = goal.tolerance or options.move_tolerance, goal.max_motion_time or options.move_time
        self._wanted = MoveSettings(posture, tolerance, longest, forget_payload=known is None)
        if known is not None:
            self._monitor.use_estimates()
        self._policy = ModelPolicy(self._robot, known, may_tighten=False)

    def _carry_out(self) -> MoveTo.Result:
        assert self._policy is not None
        move = run_move(self._ports, self._policy, self._wanted, self._is_cancelled, self._report)
        return message_of(MoveTo.Result, move, position=self._position)

    def _require_inside(self, goal: NDArray[np.float64]) -> None:
        limits = self._robot.limits
        for name, value, low, high in zip(self._robot.joint_names, goal, limits.q_lower, limits.q_upper, strict=True):
            if not low <= value <= high:
                raise ParameterOutOfRange(f"goal_position of {name} [rad]", float(value), f"{low:g} to {high:g}")

    def _failure(self, failure: IdentificationFailed, advice: str = "", **fields: Any) -> MoveTo.Result:
        if failure.code is IdentificationErrorCode.INCONSISTENT:
            advice = ". The next move will be planned with the prior of the payload; identify it to know more"
        return super()._failure(failure, advice, **fields, position=self._position)

    @property
    def _position(self) -> list[float]:
        status = self._monitor.status
        return [] if status is None else np.array(status.reference_position, dtype=float).tolist()


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
