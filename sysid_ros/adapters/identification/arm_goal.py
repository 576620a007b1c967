"""Goals of ``~/identify_arm``: move the arm with a known load, bound its parameters, check them on another motion."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_msgs.action import IdentifyArm
from sysid_ros.adapters.identification.goals import GoalBase
from sysid_ros.adapters.identification.session import (
    UNKNOWN_TEMPERATURE,
    ArmGoalSettings,
    IdentificationParameters,
    RosPlanner,
    Session,
    Suite,
    converted,
)
from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import MISSING, ParameterOutOfRange, SysidError
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.estimation.calibration import (
    CalibrationProgress,
    KnownLoad,
    LoadedRecording,
    calibrate_arm,
    empty_hand,
    reference_weight,
)
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.excitation.creep_sweep import SPEEDS, plan_creep_sweep
from sysid_ros.core.excitation.settings import ExcitationSettings
from sysid_ros.core.excitation.whole_arm import plan_arm_excitation
from sysid_ros.core.model.calibration import CalibrationRecord
from sysid_ros.core.model.robot import RobotModel, parameter_names, parameter_units
from sysid_ros.core.procedure import (
    CertifiedPlan,
    ExcitationRequest,
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    KnownLoadPolicy,
    ModelRefused,
    Phase,
    Ports,
    Progress,
    build_procedure,
)
from sysid_ros.core.trajectories.base import Trajectory
from sysid_ros.reports.arm import ArmResult, make_result, prepare_files, write_arm_result
from sysid_ros.reports.recordings.files import ROBOT, SERIAL, read_recordings
from sysid_ros.reports.recordings.recording import GRIPPER, RECORDING
from sysid_ros.ros import qos
from sysid_ros.ros.conversions.samples import Samples

_PLANNING_SHARE, _MOVING_SHARE = 0.2, 0.5
"""Shares of a goal's progress that are done when motions are planned, and when they are made."""
_PLAN_FAILED = IdentificationErrorCode.PLAN_FAILED
_OTHER_MOTION = 1000
"""Offset of the seed of the validation motion from the other seeds."""


class ArmMotions(RosPlanner):
    """A planner that searches for motions of a whole arm itself, with the published scene and control law.

    Only motions that the safe planner has proven are executed.

    Args:
        session: The suite.
        settings: How the arm is identified.
        seed: Seed of the search.
        on_search: Called with the share of the search that is done, and a sentence.
    """

    def __init__(self, session: Session, settings: ArmGoalSettings, seed: int, on_search: Callable[[float, str], None]):
        super().__init__(session, seed)
        self._settings, self._on_search = settings, on_search
        self._found: dict[float, tuple[CertifiedPlan, ...]] = {}

    def plan_excitation(self, request: ExcitationRequest) -> tuple[Trajectory, float]:
        """See :class:`Planner`; sweeps and motions to identify from are planned together, then the predicted one."""
        if request.limit_share not in self._found:
            self._found[request.limit_share] = self._search(request)
        plan = self._found[request.limit_share][request.index]
        return plan.trajectory, plan.condition_number or float("nan")

    def _search(self, request: ExcitationRequest) -> tuple[CertifiedPlan, ...]:
        settings, robot = self._settings, self._session.robot
        assumptions = Assumptions(
            robot, (robot.theta_box, request.model.box), request.model.nominal, *self._environment()
        )
        wanted = ExcitationSettings.for_arm(
            settings.each_duration, criterion=settings.criterion, starts=settings.starts,
            time_budget=settings.search_time, seed=self._seed,
            wanted_condition_number=settings.wanted_condition_number,
        ).with_limit_share(request.limit_share)  # fmt: skip
        checked = replace(
            wanted.with_duration(settings.validation_time), starts=1, seed=(self._seed + _OTHER_MOTION) % 2**32
        )
        share = settings.motions / (settings.motions + 1.0)
        plans = self._sweep(assumptions, request.start)
        for one, count, begin, part in ((wanted, settings.motions, 0.0, share), (checked, 1, share, 1.0 - share)):

            def tell(fraction: float, text: str, begin: float = begin, part: float = part) -> None:
                what = text if begin == 0.0 else "the motion that is predicted"
                self._on_search(begin + part * fraction, f"planning: {what}")

            find = partial(plan_arm_excitation, assumptions, request.start, one, count)
            is_cancelled = self._session.is_cancelled
            found = converted(partial(find, is_cancelled=is_cancelled, on_progress=tell), _PLAN_FAILED)
            numbers = [excitation.condition_number_windows for excitation in found.excitations]
            plans += [replace(plan, condition_number=number) for plan, number in zip(found.plans, numbers, strict=True)]
        return tuple(plans)

    def _sweep(self, assumptions: Assumptions, start: NDArray[np.float64]) -> list[CertifiedPlan]:
        if not self._settings.sweeps:
            return []
        records = self._session.monitor.records
        self._session.wait_until(lambda: sum(len(batch.stamps) for batch in records.samples[-10:]) > 1)
        times = np.concatenate([batch.stamps for batch in records.samples[-10:]])
        period = 1e-9 * float(np.median(np.diff(times)))
        find = partial(plan_creep_sweep, assumptions, start, self._settings.sweep_time / SPEEDS, period)
        return list(converted(partial(find, is_cancelled=self._session.is_cancelled), _PLAN_FAILED).plans)

    def _environment(self) -> tuple[Scene, RobustSettings]:
        session, monitor = self._session, self._session.monitor
        session.wait_until(lambda: None not in (monitor.scene, monitor.control_law))
        scene, law = monitor.scene, monitor.control_law
        if scene is None or law is None:
            topic, what, profile = (
                ("safe_planner/scene", "known scene", qos.SCENE)
                if scene is None
                else ("arm_driver/control_law", "control law that plans are proven for", qos.LATCHED)
            )
            text = session.describe_timeout(topic, what, profile)
            raise IdentificationFailed(_PLAN_FAILED, text)
        return scene, law


class ArmGoalRun(GoalBase):
    """Runs one goal of ``~/identify_arm``.

    Attributes:
        relative_width: Width of the combinations of parameters so far, as a share of the one before [-].
    """

    action = IdentifyArm

    def __init__(
        self, suite: Suite, options: IdentificationParameters, goal: IdentifyArm.Goal, is_cancelled: Callable[[], bool]
    ):
        super().__init__(suite, options, goal, is_cancelled, int(goal.seed))
        self._settings = options.arm
        self._before = suite.robot.uncalibrated or suite.robot
        self.relative_width, self._done = 1.0, 0.0

    def _prepare(self) -> None:
        goal = self._goal
        if self._options.is_moved_by_others:
            allowed = "receding or periodic; record the motion of an arm that others move, for sysid calibrate arm"
            raise ParameterOutOfRange("strategy", self._options.procedure.strategy, allowed)
        if not goal.serial_number.strip():
            raise ParameterOutOfRange("serial_number", MISSING, "the serial number of the arm")
        told = "" if self._monitor.status is None else self._monitor.status.serial_number
        if told and told != goal.serial_number:
            raise ParameterOutOfRange("serial_number", goal.serial_number, f"{told}, as the driver of the arm reports")
        given = {"motion_time": goal.motion_time, "validation_time": goal.validation_time}
        self._settings = replace(self._settings, **{name: value for name, value in given.items() if value != 0.0})
        self._before.gripper_state(self._settings.gripper)
        self._load = load_of(self._robot, goal)
        self._policy = KnownLoadPolicy(self._robot, self._load)
        gripper = self._settings.gripper
        self._earlier = read_recordings(goal.recordings, self._before, goal.serial_number, gripper=gripper)
        self._folder = self._make_folder(goal.results_directory)
        if self._folder is not None:
            prepare_files(self._folder, self._robot)
        known = {SERIAL: goal.serial_number, ROBOT: self._robot.name, GRIPPER: gripper}
        self._record(**known, load=self._load.name)

    # The work

    def _carry_out(self) -> IdentifyArm.Result:
        settings, earlier = self._settings, self._earlier
        used, checked = self._move()
        days = settings.valid_days
        today = datetime.date.today()
        record = CalibrationRecord(
            serial=self._goal.serial_number,
            date=today.isoformat(),
            expires=(today + datetime.timedelta(days=days)).isoformat() if days else None,
            firmware=settings.firmware or None,
            temperature=settings.temperature if settings.temperature > UNKNOWN_TEMPERATURE else None,
            offset_change=(settings.offset_change,) * self._robot.n,
        )
        estimator = EstimatorSettings(gripper=settings.gripper)
        calibration = calibrate_arm(
            earlier.robot, [*earlier.recordings, used], record, estimator, self._take_calibration, self._is_cancelled
        )
        self._tell(Phase.REPORTING, "writing the results", 0.97)
        result = make_result(earlier.robot, calibration, estimator, checked, earlier.warnings)
        self.relative_width = result.identification.relative_width
        return self._success(result)

    def _move(self) -> tuple[LoadedRecording, LoadedRecording]:
        settings, policy, load = self._settings, self._policy, self._load
        count = settings.sweeps + settings.motions + 1
        longest = max(settings.each_duration, settings.validation_time, settings.sweep_time / SPEEDS)
        wanted = IdentificationSettings(
            strategy="periodic",
            trajectories=count,
            trajectory_duration=min(longest, 30.0),
            max_motion_time=600.0,
            shrink_threshold=0.0,
            weighing_time=self._options.procedure.weighing_time,
            settle_time=self._options.procedure.settle_time,
        )
        motions = ArmMotions(self._session, settings, int(self._goal.seed), self._take_search)
        ports = Ports(motions, self._arm, self._ports.estimates)
        build_procedure(ports, policy, wanted, self._is_cancelled, self._take_motion).collect()
        records = self._monitor.records
        self._end_recording()
        # Give the controller back the prior: the hand may hold something else next
        try:
            self._arm.set_model(policy.reset(), is_reset=True)
        except (ModelRefused, IdentificationFailed) as refusal:
            self._logger.warning(f"the controller keeps the model of the load: {refusal}")
        begin_ns, _ = records.plans[-1]
        before, after = split_at(records.samples, begin_ns)
        name = RECORDING if self._folder is None else f"{self._folder.name}/{RECORDING}"
        return LoadedRecording(name, before, load), LoadedRecording("last motion", after, load)

    def _take_search(self, share: float, text: str) -> None:
        self._tell(Phase.PLANNING, text, _PLANNING_SHARE * share)

    def _take_motion(self, progress: Progress) -> None:
        share = _PLANNING_SHARE + (_MOVING_SHARE - _PLANNING_SHARE) * progress.progress
        self._advance(progress, share if progress.progress > 0.0 else 0.0)

    def _take_calibration(self, progress: CalibrationProgress) -> None:
        self.relative_width = min(self.relative_width, progress.relative_width)
        self._tell(Phase.ESTIMATING, progress.phase, _MOVING_SHARE + (0.97 - _MOVING_SHARE) * progress.share)

    def _tell(self, phase: Phase, text: str, share: float) -> None:
        count = self._settings.sweeps + self._settings.motions + 1
        made = len(self._monitor.records.plans)
        self._advance(Progress(phase, text, share, made, count, self._monitor.estimate), share)

    def _advance(self, progress: Progress, share: float) -> None:
        """Report progress, with the share of the whole that is done, which never falls."""
        self._done = max(self._done, share)
        self._report(replace(progress, progress=self._done))

    # Answers

    def _success(self, result: ArmResult) -> IdentifyArm.Result:
        calibration, check = result.identification.calibration, result.check
        message = IdentifyArm.Result(
            error_code=int(IdentificationErrorCode.NONE),
            parameter_names=list(parameter_names(self._before)),
            units=list(parameter_units(self._before)),
            values=calibration.nominal.tolist(),
            lower=calibration.box.lower.tolist(),
            upper=calibration.box.upper.tolist(),
            joint_names=list(self._robot.joint_names),
            relative_width=result.identification.relative_width,
            motion_time=self.motion_time,
        )
        if check is not None:
            message.residual_before, message.residual_after = check.before.tolist(), check.after.tolist()
        if self._folder is not None:
            try:
                left_out = write_arm_result(result, self._folder, self._options.model)
            except SysidError as error:
                message.error_code = int(IdentificationErrorCode.RESULTS_NOT_WRITTEN)
                message.error_text = f"identified, but {error}. The numbers in this result are good"
                left_out = ()
            for reason in left_out:
                self._logger.warning(reason)
        return message

    def _failure(self, failure: IdentificationFailed, advice: str = "", **fields: Any) -> IdentifyArm.Result:
        self._end_recording()
        if self._folder is not None and self._monitor.records.plans and (self._folder / RECORDING).is_file():
            advice = f". The recording is in {self._folder / RECORDING}"
        return super()._failure(failure, advice, **fields, relative_width=1.0)

    def _end_recording(self, final: ParameterEstimate | None = None) -> str:
        if fault := super()._end_recording(final):
            self._logger.error(fault)
        return fault


def load_of(robot: RobotModel, goal: IdentifyArm.Goal) -> KnownLoad:
    """Return the held load, as a goal states it.

    Raises:
        SysidError: A field is out of range.
    """
    com = np.array(goal.load_com, dtype=float)
    if goal.load_mass == 0.0:
        if goal.load_mass_tolerance != 0.0 or com.size:
            raise ParameterOutOfRange("load_mass [kg]", 0.0, "above 0 where tolerance or CoM are given")
        return empty_hand()
    if not com.size:
        return reference_weight(robot, goal.load_mass, goal.load_mass_tolerance)
    tolerance = goal.load_com_tolerance
    if com.shape != (3,) or not np.all(np.isfinite(com)):
        raise ParameterOutOfRange("load_com [m]", com.tolist(), "three numbers, or none")
    if not 0.0 <= tolerance < np.inf:
        raise ParameterOutOfRange("load_com_tolerance [m]", tolerance, "0 or more")
    return reference_weight(robot, goal.load_mass, goal.load_mass_tolerance, Box.around(com, np.full(3, tolerance)))


def split_at(batches: Sequence[Samples], stamp_ns: int) -> tuple[list[SampleBlock], list[SampleBlock]]:
    """Split samples into blocks up to a stamp [ns], and blocks after it."""
    before, after = list[SampleBlock](), list[SampleBlock]()
    for batch in batches:
        for block in batch.blocks()[0]:
            first = int(np.searchsorted(block.stamps, stamp_ns, side="right"))
            if first:
                before.append(block.slice(0, first))
            if first < len(block):
                after.append(block.slice(first, len(block)))
    return before, after
