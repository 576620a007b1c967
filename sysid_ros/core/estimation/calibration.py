"""Calibration of an arm: one set-membership problem for recordings of known loads, compacted to certified rows.

All recordings share the arm's parameters, friction, gains, torque lag and the direction of gravity; each has its own
load, known to a box, and its own change of the torque offsets. The result is ranges of a few directions of the shared
unknowns, the best determined ones, each proven by multipliers of its own. docs/theory/bounds.md has the proof.
:func:`describe_arm` translates it to the base parameters of the arm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation.bounds.agreement import find_least_scale
from sysid_ros.core.estimation.bounds.consistency import (
    RowLabels,
    check_sensors,
    describe_inconsistency,
    find_inconsistent_rows,
)
from sysid_ros.core.estimation.bounds.set_membership import (
    SidedBounds,
    add_inequalities,
    bound_by_membership,
    seed_cuts,
    solve_exactly,
)
from sysid_ros.core.estimation.bounds.shape_cuts import shape_cuts
from sysid_ros.core.estimation.lp.problem import Covariance, Problem
from sysid_ros.core.estimation.parameters.bounds import hull, tighten
from sysid_ros.core.estimation.parameters.estimate import Alarm, CombinationEstimate
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import (
    Combinations,
    Unknowns,
    describe_unknowns,
    is_of_arm,
    shared_center,
)
from sysid_ros.core.estimation.point.coordinates import from_parameters
from sysid_ros.core.estimation.point.fit import FitObjective, fit
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import RowStream
from sysid_ros.core.identifiability.data import felt_joint_parameters
from sysid_ros.core.identifiability.mechanism import MechanismOptions, compare_robot
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.model.calibrated import hash_kinematics, open_arm
from sysid_ros.core.model.calibration import ArmCalibration, CalibrationRecord, ConstantBounds, opened_settings
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent
from sysid_ros.core.model.payload import object_box
from sysid_ros.core.model.robot import (
    AS_CALIBRATED,
    FRICTION,
    INERTIAL,
    PayloadPrior,
    PayloadShape,
    RobotModel,
    parameter_names,
    parameter_units,
)

Array = NDArray[np.float64]

_MOST_SHARE = 0.98
"""Share of the allowed errors beyond which recordings are out of the ordinary [-]. With all assumptions kept, 5 of 20
calibrations use more than 0.9, none more than this; most with a weight 10 % off do (bench/_attacks_share.py)."""
_KNOWN_ENOUGH = 0.05
"""Directions of which the data say less than this, in prior radii as standard deviations squared, are left out."""
_SHRINKS = 0.98
"""Parameters whose standard deviation falls below this part of the prior's get bounds of their own."""
_BATCH = 16
"""Directions that are bounded together, which limits the memory."""
_TOLERANCE = 0.005
"""Largest gap of their programs, relative to the width of the bounds [-]."""
_JITTER = ERROR_TERMS.index("jitter")
_ROUNDING = 1e-100
"""A radius below this is none: boxes are rounded outwards, so that what is exactly zero has a radius of 5e-324. It adds
less to a row than the allowance for rounding."""
_WINDOWS_SHARE, _DIRECTIONS_SHARE = 0.3, 0.15
"""Shares of a pass that windows, and the directions to be bounded, take; the bounds take the rest."""
_LEFT_AFTER_STEP = 0.93
"""Factor of a step of the solver on the remainder of a solution, to estimate progress."""
_PASSES = 2
"""Times the budgets of the rows are made, the second time with the box the first pass proved."""
_REST_INTERVALS = 10.0
"""Of ``rest_interval``, in which one window counts while the arm rests: a load that is known does not change."""
_MOST_WINDOWS = 300
"""Where there would be more windows they are longer. Time and memory grow with the windows; the bounds of payloads with
a calibration hardly depend on their length: what longer ones leave open inside is made up for by fewer ends."""
_LONGEST_WINDOW = 0.2
"""Length up to which that was measured [s]."""
_MOST_SECONDS = 50.0
"""Of more data in windows some are left out, evenly, so that 100 s at 1 kHz take less than a minute."""
_INCONSISTENT = 1.01
"""Share of the allowed errors from which on recordings are inconsistent, with the tolerance of the share [-]."""
_LEFT_OUT = 0.05
"""Longer windows may leave out this share of a recording, at its gaps."""
_CANCELLED = "the calibration was cancelled"
_BODIES = MechanismOptions(massless="unknown")
_Part = tuple[Rows, Unknowns, Box]
"""A recording: its rows, their unknowns of the arm, and the box of the load."""


class CalibrationInconsistent(SysidError):
    """Recordings that no arm within the assumptions explains.

    It has the recording that shows it, or all of them, and other loads with which data would agree.
    """

    is_outcome = True

    def __init__(self, recording: str, alarm: Alarm | str, remedies: Sequence[str] = ()):
        self.recording, self.alarm, self.remedies = recording, alarm, tuple(remedies)
        found = f"; the data agree {' or '.join(remedies)}" if remedies else ""
        super().__init__(
            f"{recording}: no arm within the assumptions explains the data ({alarm}){found}; was the stated load "
            "attached, where it was stated to be, is it the same arm, are the sensors' errors and the parameter box "
            "wide enough?"
        )


class CalibrationShortOfData(SysidError):
    """A recording without a single window; the message says which, and what is missing."""


@dataclass(frozen=True)
class CalibrationProgress:
    """How far a calibration is.

    Attributes:
        share: Share of the work that is done, 0..1.
        phase: The present step.
        relative_width: Geometric mean of the widths of the certified rows over those before, with the bounds so far
            [-].
    """

    share: float
    phase: str
    relative_width: float = 1.0


@dataclass(frozen=True)
class KnownLoad:
    """Content of the hand during a recording.

    Attributes:
        name: Its name in reports.
        prior: Box of its parameters about the frame of the last joint; all zero for the empty hand.
    """

    name: str
    prior: PayloadPrior


def empty_hand() -> KnownLoad:
    """Return the load of a hand that holds nothing."""
    zero = np.zeros(INERTIAL)
    return KnownLoad("empty hand", PayloadPrior(Box(zero, zero), zero, name="empty hand"))


def reference_weight(robot: RobotModel, mass: float, tolerance: float, com: Box | None = None) -> KnownLoad:
    """Return the load of an object of known mass whose other parameters are the payload prior's.

    Args:
        robot: The arm with the prior of its payload.
        mass: Mass [kg].
        tolerance: Largest error of the mass [kg].
        com: Box of the CoM about the frame of the last joint, (3,) [m]; by default the prior's.

    Raises:
        SysidError: The prior does not describe the payload as an object.
    """
    shape = robot.payload_prior.shape
    if shape is None:
        raise SysidError(f"payload prior '{robot.payload_prior.name}' has no shape; a known mass needs one (--prior)")
    if not 0.0 < mass < np.inf:
        raise SysidError(f"invalid mass of a known load {mass} kg: expected more than 0")
    if not 0.0 <= tolerance < mass:
        raise SysidError(f"invalid tolerance of a known load {tolerance} kg: expected 0 to below its mass, {mass} kg")
    shape = shape if com is None else PayloadShape(com, shape.gyration)
    box = object_box([mass - tolerance, mass + tolerance], shape.com, shape.gyration)
    nominal = from_com_form(mass, shape.com.center, 0.5 * mass * shape.gyration**2 * np.eye(3))
    name = f"reference weight {mass:g} kg +- {tolerance:g} kg"
    return KnownLoad(name, PayloadPrior(box, nominal, name=name, shape=shape))


def with_known_mass(robot: RobotModel, mass: float, tolerance: float) -> RobotModel:
    """Return the arm with a weighed payload: its prior with the mass cut to this range.

    Raises:
        SysidError: As :func:`reference_weight`, or the prior has no such mass.
    """
    own, prior = robot.payload_prior, reference_weight(robot, mass, tolerance).prior
    low, high = own.box.lower[0], own.box.upper[0]
    if not low <= mass - tolerance <= mass + tolerance <= high:
        allowed = f"{low:g} to {high:g} with the payload prior '{own.name}' (--prior)"
        raise ParameterOutOfRange("mass of the payload [kg]", f"{mass:g}+-{tolerance:g}", allowed)
    name = f"{own.name}, weighed: {mass:g} kg +- {tolerance:g} kg"
    return replace(robot, payload_prior=replace(prior, name=name, target=own.target, spheres=own.spheres))


def with_stated_mass(robot: RobotModel, mass: float, tolerance: float) -> RobotModel:
    """Return the arm as :func:`with_known_mass` does; itself where both numbers are 0: the mass is not known."""
    return with_known_mass(robot, mass, tolerance) if mass or tolerance else robot


@dataclass(frozen=True)
class LoadedRecording:
    """A recording of the arm with a known load; its name is for messages."""

    name: str
    blocks: Sequence[SampleBlock]
    load: KnownLoad


def calibrate_arm(
    robot: RobotModel,
    recordings: Sequence[LoadedRecording],
    record: CalibrationRecord,
    settings: EstimatorSettings | None = None,
    on_progress: Callable[[CalibrationProgress], None] = lambda progress: None,
    is_cancelled: Callable[[], bool] = lambda: False,
    seeks_remedies: bool = True,
) -> ArmCalibration:
    """Bound the unknowns that recordings of one arm with known loads share.

    Args:
        robot: The arm with the box that is known to hold its parameters.
        recordings: Recordings of this arm.
        record: Serial number, dates and how much the torque offsets change; the rest is filled in.
        settings: Windows and assumptions of the estimator, and the state of the gripper in all recordings.
        on_progress: Called with every step of the work.
        is_cancelled: Ends the work with :class:`Cancelled`.
        seeks_remedies: Whether a contradiction says with which other loads the data agree.

    Raises:
        CalibrationInconsistent: The recordings contradict the assumptions or each other.
        Cancelled: It was cancelled; has what was proven by then.
        CalibrationShortOfData: There is no window in a recording.
        SysidError: There is no recording.
    """
    settings = replace(settings or EstimatorSettings(), body="payload", target="payload")
    if settings.gripper == AS_CALIBRATED:
        raise ParameterOutOfRange("gripper", AS_CALIBRATED, "a state of the robot file, or empty: not stated")
    arm, gripper = replace(robot.with_gripper(settings.gripper), calibration=None), settings.gripper
    settings = replace(settings, gripper="")  # the box of its state is the arm's now
    settings = replace(settings, rest_interval=min(_REST_INTERVALS * settings.rest_interval, 60.0))
    settings = _with_few_windows(arm, recordings, settings)
    seconds = sum(1e-9 * float(block.stamps[-1] - block.stamps[0]) for one in recordings for block in one.blocks)
    kept = min(_MOST_SECONDS / max(seconds, 1e-9), 1.0)
    offset_change = np.asarray(record.offset_change or np.zeros(robot.n), dtype=float)
    if not recordings:
        raise SysidError("there is no recording to calibrate from; give at least one with the empty hand")
    digest = hashlib.sha256()
    for recording in recordings:
        for block in recording.blocks:
            for values in (block.stamps, block.q, block.v, block.tau):
                digest.update(np.ascontiguousarray(values).tobytes())
    work = Work(sum(len(recording.blocks) for recording in recordings), on_progress, is_cancelled)
    first_box = arm.theta_box
    result: ArmCalibration | None = None
    texts: tuple[str, ...] = ()
    share: float | None = None
    known = (recording.load.prior.box for recording in recordings if recording.load.prior.box.lower[0] > 0.0)
    weights = tuple(sorted({float(box.center[0]) for box in known}))

    def finished() -> ArmCalibration | None:
        if result is None:
            return None
        kept = replace(record, gripper=gripper, recordings=texts, weights=weights, share=share, data=digest.hexdigest())
        return replace(result, robot=robot.name, kinematics=hash_kinematics(robot), record=kept)

    for number in range(_PASSES):
        work.begin(number)
        parts: list[_Part] = []
        try:
            for recording in recordings:
                rows, unknowns = collect_rows(arm, recording, settings, offset_change, work, kept)
                parts.append((rows, unknowns, recording.load.prior.box))
            work.tell("whether the recordings agree", _WINDOWS_SHARE)
            problem = join_recordings(parts, offset_change)
            _check_rows(arm, problem, recordings, [rows for rows, _, _ in parts])
            if share is None:  # of the box before the first pass
                share = find_share(problem)
                if share > _INCONSISTENT:  # bounding would find out, too, but takes longer
                    raise CalibrationInconsistent("all recordings together", "their rows are jointly infeasible")
            problem = add_load_cuts(problem, parts, offset_change)
            asked = parts if work.is_last_pass else []
            texts = tuple(
                f"{recording.name}: {recording.load.name}, {np.sum(rows.duration[:: arm.n]):.1f} s"
                for recording, (rows, _, _) in zip(recordings, parts, strict=True)
            )
            result = _solve(arm, problem, parts[0][1], settings, asked, offset_change, work)
        except CalibrationInconsistent as error:
            remedies = _agreeing_loads(arm, recordings, parts, offset_change) if seeks_remedies else []
            raise CalibrationInconsistent(error.recording, error.alarm, remedies) from None
        except Cancelled:
            is_narrower = result is not None and np.any(result.box.width < first_box.width)
            raise Cancelled(_CANCELLED, finished() if is_narrower else None) from None
        arm = replace(arm, theta_box=result.box)
    calibration = finished()
    assert calibration is not None
    if work.is_cut:
        raise Cancelled(_CANCELLED, calibration)
    return calibration


def find_share(problem: Problem) -> float:
    """Return the share of the allowed errors, of sensors, arm and loads alike, that recordings use [-]."""
    none = np.zeros(0)
    all_errors = replace(
        problem,
        center=none,
        radius=none,
        theta_size=none,
        y=problem.y[:, :0],
        b=np.concatenate([problem.y, problem.b], axis=1),
        delta_radius=np.concatenate([problem.radius, problem.delta_radius]),
        objectives=np.zeros((0, 0)),
    )
    return find_least_scale(all_errors, np.zeros((0, 0)))[0]


def describe_doubts(record: CalibrationRecord) -> list[str]:
    """Describe unusual agreement of recordings and the limits of their data, a sentence each."""
    doubts = [f"not as assumed: {one}; the bounds hold if it is off by no more" for one in record.openings]
    if record.share is not None and record.share > _MOST_SHARE:
        doubts.append(
            f"the recordings use {100.0 * record.share:.0f} % of the errors that are allowed: an assumption is "
            "probably wrong. Likely causes: a reference weight of another mass or elsewhere than stated; recordings "
            "of different arms; a tool that the model lacks; a tilted base; a lag of the torques"
        )
    if record.weights:
        names = " and ".join(f"{mass:g} kg" for mass in record.weights)
        doubts.append(
            f"an error in the mass of the reference weight ({names}) cannot be separated from gains and errors of the "
            "torque sensors within their bounds: payloads would be off by the same share; weigh it, a second weight "
            "only shows an error beyond these bounds"
        )
    return doubts


def _with_few_windows(
    robot: RobotModel, recordings: Sequence[LoadedRecording], settings: EstimatorSettings
) -> EstimatorSettings:
    """Return settings with windows so long that there are not too many, unless gaps leave no room for them."""

    def count(settings: EstimatorSettings) -> Array:
        unknowns = describe_unknowns(robot, settings)
        streams = [RowStream(robot, settings, unknowns) for _ in recordings]
        return np.array(
            [
                sum(not stream.is_redundant(window) for block in recording.blocks for window in stream.add(block)[0])
                for stream, recording in zip(streams, recordings, strict=True)
            ]
        )

    own, present = max(settings.window_duration, robot.sensors.averaging_time), count(settings)
    duration = min(own * float(present.sum()) / _MOST_WINDOWS, _LONGEST_WINDOW)
    if duration <= own:
        return settings
    longer = replace(settings, window_duration=duration)
    covered = duration * (count(longer) + 1.0)  # the last may lack its end
    return longer if np.all(covered >= (1.0 - _LEFT_OUT) * own * present) else settings


class Work:
    """Progress of a calibration; raises an error where it is cancelled."""

    def __init__(
        self,
        blocks: int,
        on_progress: Callable[[CalibrationProgress], None],
        is_cancelled: Callable[[], bool],
        passes: int = _PASSES,
    ):
        self._blocks, self._on_progress, self._is_cancelled = blocks, on_progress, is_cancelled
        self._passes, self._pass, self._done = passes, 0, 0
        self.prior: Array | None = None  # radii of the shared unknowns, before the first pass
        self.is_cut = False  # whether the last pass was cancelled among its bounds

    @property
    def is_last_pass(self) -> bool:
        """Whether the bounds of this pass are kept."""
        return self._pass == self._passes - 1

    def begin(self, number: int) -> None:
        """Begin a pass over all recordings."""
        self._pass, self._done = number, 0

    def count_block(self, name: str) -> None:
        """Count a finished block of a recording."""
        self._done += 1
        self.tell(f"windows of {name}", _WINDOWS_SHARE * self._done / self._blocks)

    def tell_directions(self, share: float) -> None:
        """Report the share of the directions to be bounded that is found."""
        self.tell("directions to be bounded", _WINDOWS_SHARE + _DIRECTIONS_SHARE * share)

    def tell_bounds(self, share: float, widths: Array) -> None:
        """Report the share of the bounds that is done, and the widths of rows over those before, (K,)."""
        mean = float(np.exp(np.mean(np.log(np.maximum(widths, 1e-12))))) if widths.size else 1.0
        before = _WINDOWS_SHARE + _DIRECTIONS_SHARE
        self.tell("bounds", before + (1.0 - before) * share, mean)

    def tell(self, phase: str, share: float, relative_width: float = 1.0) -> None:
        """Report the share of the pass that is done when the present step begins.

        Raises:
            Cancelled: It was cancelled.
        """
        if self._is_cancelled():
            raise Cancelled(_CANCELLED)
        self._on_progress(CalibrationProgress((self._pass + share) / self._passes, phase, relative_width))


def _solve(
    arm: RobotModel,
    problem: Problem,
    unknowns: Unknowns,
    settings: EstimatorSettings,
    asked: Sequence[_Part],
    offset_change: Array,
    work: Work,
) -> ArmCalibration:
    """Bound the shared unknowns, from rows made with the present box of the arm."""
    used = np.flatnonzero(unknowns.radius > _ROUNDING)
    covariance = Covariance.of(problem, problem.y * problem.radius)
    gram = covariance.gram
    values, vectors = np.linalg.eigh(gram)
    step = np.linalg.solve(np.eye(used.size) + gram, covariance.solve(np.eye(used.size)).T @ problem.r)
    deviation = np.zeros(unknowns.radius.size)
    deviation[used] = problem.radius * step
    directions = vectors[:, (values > _KNOWN_ENOUGH) & bool(asked)].T / problem.radius
    felt = []
    for motion in range(len(asked)):
        felt.append(_payload_directions(arm, asked, motion, offset_change, deviation, work))
    directions = np.concatenate([directions, *felt])
    own = np.sqrt(np.diag(np.linalg.inv(np.eye(used.size) + gram))) < _SHRINKS
    objectives = np.concatenate([directions, np.eye(used.size)[own]])
    center, count = shared_center(unknowns, settings), len(directions)
    work.prior = unknowns.radius if work.prior is None else work.prior
    lower, upper = _bound(problem, objectives, 2.0 * np.abs(directions) @ work.prior[used], work)
    objectives = objectives[: len(lower)]  # bounded before the work was cancelled
    matrix = np.zeros((len(objectives), unknowns.radius.size))
    matrix[:, used] = objectives
    shift = matrix @ center
    pad = 1e-14 * (np.abs(matrix) @ (np.abs(center) + unknowns.radius))
    lower, upper = lower + shift - pad, upper + shift + pad
    single = used[own][: len(lower[count:])]
    of_arm = is_of_arm(arm)
    is_parameter = of_arm[single]
    box = _narrow(arm, single[is_parameter], lower[count:][is_parameter], upper[count:][is_parameter])
    if box is None:
        raise CalibrationInconsistent("all recordings together", "the bounds of some body hold no body")
    shared, size = center + deviation, box.lower.size
    # Friction outside the efforts stays as it was.
    is_felt = of_arm[:size] & ((unknowns.radius[:size] > 0.0) | (center[:size] != 0.0))
    nominal = _nearest_bodies(arm, box, np.where(is_felt, shared[:size], arm.theta_nominal))
    known = Box(center - unknowns.radius, center + unknowns.radius)
    low, high = known.lower.copy(), known.upper.copy()
    np.maximum.at(low, single, lower[count:])
    np.minimum.at(high, single, upper[count:])
    constants = _describe_constants(arm, unknowns, low, high, known)
    record = CalibrationRecord(serial="", date="")
    # Bounds of single parameters of the arm are in the box; all others are rows.
    kept = np.arange(len(matrix)) < count
    kept[count:] = bool(asked) & ~is_parameter
    return ArmCalibration(arm.name, "", record, matrix[kept], lower[kept], upper[kept], box, nominal, constants)


def _describe_constants(
    robot: RobotModel, unknowns: Unknowns, lower: Array, upper: Array, prior: Box
) -> ConstantBounds:
    """Return bounds of the uncertain shared unknowns that are no parameters of the arm, and of all of them, (M,)."""
    n, names = robot.n, list(parameter_names(robot))
    units = list(parameter_units(robot))
    for entry, what in ((0, "F_c"), (1, "F_v")):
        for k, name in enumerate(robot.joint_names):
            names[INERTIAL * n + FRICTION * k + entry] = f"{what} behind the sensor of {name}"
    names += [f"torque lag of {name}" for name in robot.joint_names]
    names += [f"torque gain of {name}" for name in robot.joint_names]
    names += ["gravity across, first axis", "gravity across, second axis", "gravity along"]
    units += ["s"] * n + ["-"] * n + ["m/s^2"] * 3
    chosen = _constant_entries(robot, unknowns)
    return ConstantBounds(
        names=tuple(names[k] for k in chosen),
        units=tuple(units[k] for k in chosen),
        lower=np.maximum(lower[chosen], prior.lower[chosen]),
        upper=np.minimum(upper[chosen], prior.upper[chosen]),
        prior=prior.select(chosen),
    )


def _constant_entries(robot: RobotModel, unknowns: Unknowns) -> NDArray[np.intp]:
    return np.flatnonzero((unknowns.radius > _ROUNDING) & ~is_of_arm(robot))


def _payload_directions(
    arm: RobotModel, parts: Sequence[_Part], motion: int, offset_change: Array, deviation: Array, work: Work
) -> Array:
    """Compute how the arm acts on the bounds of a payload that is moved like the load of a recording.

    The joint program of all recordings and of such a payload, with data of the most likely arm and the middle of its
    prior, has multipliers l of the payload's rows ``y x + b delta = u`` behind each of its 20 bounds. Where the range
    of ``l b delta`` is proven, that bound loses nothing of the recordings' information.

    Returns:
        The directions of the shared unknowns that count, (20, used), in units in which the largest reach over the box
        is 1; none where the prior is not of a payload.
    """
    rows, unknowns, _ = parts[motion]
    used = np.flatnonzero(unknowns.radius > _ROUNDING)
    prior = arm.payload_prior
    if prior.target != "payload":
        return np.zeros((0, used.size))
    virtual = replace(rows, u=rows.y @ prior.box.center + rows.b @ deviation)
    loaded = [(virtual, replace(unknowns, target=replace(unknowns.target, shape=prior.shape)), prior.box), *parts]
    plain = join_recordings(loaded, offset_change)
    joint = add_load_cuts(plain, loaded, offset_change)
    count = int(np.count_nonzero(prior.box.radius))  # the nuisances of the first part begin with its payload
    problem = replace(
        joint,
        center=np.zeros(count),
        radius=joint.delta_radius[:count],
        y=joint.b[:, :count],
        b=np.concatenate([joint.y, joint.b[:, count:]], axis=1),
        delta_radius=np.concatenate([joint.radius, joint.delta_radius[count:]]),
        theta_size=joint.delta_radius[:count],
        objectives=np.eye(count),
    )
    found = bound_by_membership(
        problem, _TOLERANCE, on_step=lambda step: work.tell_directions((motion + _share(step)) / len(parts))
    )
    multipliers = found.warm_start.multipliers
    assert multipliers is not None
    of_payload = len(joint.r) - len(plain.r) + np.arange(len(virtual))  # the cuts come before its rows
    directions = multipliers[:, of_payload] @ joint.y[of_payload]
    size = np.abs(directions) @ joint.radius
    return np.asarray(directions[size > 0.0] / size[size > 0.0, None])


def _check_rows(
    robot: RobotModel, problem: Problem, recordings: Sequence[LoadedRecording], parts: Sequence[Rows]
) -> None:
    """Raise an error with recording and rows where rows are infeasible by themselves."""
    bad = find_inconsistent_rows(problem)
    if not bad.size:
        return
    edges = np.cumsum([0, *(len(part) for part in parts)])
    index = int(np.searchsorted(edges, bad[0], side="right")) - 1
    stacked = Rows.stack(parts)
    labels = RowLabels(stacked, robot.joint_names, int(parts[index].start[0]))
    raise CalibrationInconsistent(recordings[index].name, describe_inconsistency(problem, labels))


def _agreeing_loads(
    robot: RobotModel, recordings: Sequence[LoadedRecording], parts: Sequence[_Part], offset_change: Array
) -> list[str]:
    """Return other loads, each of one recording alone, with which the rows are feasible, a clause each."""
    found: list[str] = []
    if len(parts) < len(recordings):
        return found
    for number, recording in enumerate(recordings):
        mass = recording.load.prior.box
        if mass.upper[0] <= 0.0:
            continue
        anywhere = reference_weight(robot, float(mass.center[0]), float(mass.radius[0])).prior.box
        others = {
            f"if nothing was attached in {recording.name}": empty_hand().prior.box,
            f"if the centre of mass in {recording.name} is not where it was stated": anywhere,
            f"if {recording.name} has another load": robot.payload_prior.box,
        }
        for clause, box in others.items():
            changed = [(rows, unknowns, box if k == number else own) for k, (rows, unknowns, own) in enumerate(parts)]
            problem = join_recordings(changed, offset_change)
            if find_inconsistent_rows(problem).size:
                continue
            sided = bound_by_membership(replace(problem, objectives=problem.objectives[:1]), _TOLERANCE)
            if sided.infeasibility is None:
                found.append(clause)
                break
    return found


def collect_rows(
    robot: RobotModel,
    recording: LoadedRecording,
    settings: EstimatorSettings,
    offset_change: Array,
    work: Work,
    kept: float = 1.0,
) -> tuple[Rows, Unknowns]:
    """Build the rows of a recording, with its load as the payload, of a share of the windows."""
    loaded = replace(robot, payload_prior=recording.load.prior)
    unknowns = describe_unknowns(loaded, settings)
    stream = RowStream(loaded, settings, unknowns)
    rows: list[Rows] = []
    number = 0
    for block in recording.blocks:
        windows = stream.add(block)[0][::-1]
        while windows:
            window = windows.pop()  # dropped when used: its signals take megabytes
            if stream.is_redundant(window):
                continue
            number += 1
            if int(number * kept) == int((number - 1) * kept):
                continue
            alarm = check_sensors(stream.model, window)
            if alarm is not None:
                raise CalibrationInconsistent(recording.name, alarm)
            rows.append(stream.build_rows(window))
        work.count_block(recording.name)
    if not rows:
        raise CalibrationShortOfData(recording.name, stream.describe_shortfall("the arm"))
    stacked = Rows.stack(rows)
    errors = stacked.errors.copy()  # the offset may be larger than the budget of the jitter counts with
    errors[:, _JITTER] += 2.0 * robot.sensors.stamp_jitter * offset_change[stacked.joint]
    stacked = replace(stacked, errors=errors)
    return stacked, unknowns


def join_recordings(parts: Sequence[_Part], offset_change: Array) -> Problem:
    """Join recordings: the shared unknowns with a radius become the target, loads and offset changes nuisances."""
    n, radius = offset_change.size, parts[0][1].radius
    used, size = np.flatnonzero(radius > _ROUNDING), radius.size
    beta = INERTIAL * n + np.arange(3, FRICTION * n, FRICTION)
    problems = [
        Problem.build(rows, box.center, box.radius, radius, unknowns.end_error) for rows, unknowns, box in parts
    ]
    nuisances, ends = [], []
    index: list[NDArray[np.int64]] = []
    products = (1 + INERTIAL) * n
    for problem, (_, _, box) in zip(problems, parts, strict=True):
        nuisances.append(np.concatenate([problem.y, problem.b[:, size:], problem.b[:, beta]], axis=1))
        # The boxes of the loads differ, and so do the radii of their products with velocity errors: made alike here.
        scaled = problem.ends.copy()
        scaled[..., :products] *= np.tile(np.append(1.0, box.radius), n)
        ends.append(scaled)
        index.append(problem.end_index + 1 + max((int(part.max()) for part in index), default=-1))
    first, nuisance_radius = problems[0], np.concatenate([_nuisance_radius(part, offset_change) for part in parts])
    is_open = nuisance_radius > 0.0
    end_radius = first.end_radius.copy()
    end_radius[:products] = np.repeat(end_radius[: products : 1 + INERTIAL], 1 + INERTIAL)
    return replace(
        first,
        center=np.zeros(used.size),
        radius=radius[used],
        y=np.concatenate([problem.b[:, used] for problem in problems]),
        b=scipy.linalg.block_diag(*nuisances)[:, is_open],
        delta_radius=nuisance_radius[is_open],
        ends=np.concatenate(ends),
        end_index=np.concatenate(index),
        end_radius=end_radius,
        r=np.concatenate([problem.r for problem in problems]),
        errors=np.concatenate([problem.errors for problem in problems]),
        theta_size=radius[used],
        objectives=np.eye(used.size),
    )


def _nuisance_radius(part: _Part, offset_change: Array) -> Array:
    """Return the radii of a recording's own unknowns: load, its products with the tilt of gravity, offset changes."""
    rows, unknowns, box = part
    tilted = np.outer(unknowns.radius[-3:], box.radius).ravel() if rows.tilt.shape[1] else np.zeros(0)
    return np.concatenate([box.radius, tilted, offset_change])


def add_load_cuts(joint: Problem, parts: Sequence[_Part], offset_change: Array) -> Problem:
    """Add the inequalities of every load of its shape as rows before those of the recordings (:func:`join_recordings`).

    Boxes let mass, first moments and inertia of a load vary on their own; no body does.
    """
    cuts: list[Array] = []
    for _, unknowns, box in parts:
        is_body = box.upper[0] > 0.0
        own = [seed_cuts(unknowns.nominal)] if is_body else [np.zeros((0, INERTIAL))]
        own += [shape_cuts(unknowns.shape, box)] if is_body and unknowns.shape is not None else []
        cuts.append(np.concatenate(own))
    radii = [_nuisance_radius(part, offset_change) for part in parts]
    padded = [np.pad(one, ((0, 0), (0, radius.size - INERTIAL))) for one, radius in zip(cuts, radii, strict=True)]
    b = scipy.linalg.block_diag(*padded)[:, np.concatenate(radii) > 0.0]
    value = np.concatenate([one @ box.center for one, (_, _, box) in zip(cuts, parts, strict=True)])
    size = [np.abs(one) @ (np.abs(box.center) + box.radius) for one, (_, _, box) in zip(cuts, parts, strict=True)]
    is_cut = value < np.abs(b) @ joint.delta_radius  # others hold in the whole box
    none = np.zeros((np.count_nonzero(is_cut), joint.radius.size))
    return add_inequalities(joint, none, b[is_cut], value[is_cut], np.concatenate(size)[is_cut])


def _bound(problem: Problem, objectives: Array, before: Array, work: Work) -> tuple[Array, Array]:
    """Bound objectives (K, P) over all rows, (K,) each; the first ones had these widths before.

    If cancelled in the last pass, return the bounds so far.
    """
    widths, count = before.copy(), len(objectives)
    lower, upper = np.zeros(count), np.zeros(count)
    for first in range(0, count, _BATCH):
        part = slice(first, first + _BATCH)
        size = len(objectives[part])

        def tell(step: int, first: int = first, size: int = size) -> None:
            work.tell_bounds((first + size * _share(step)) / count, widths / before)

        try:
            sided = bound_by_membership(replace(problem, objectives=objectives[part]), _TOLERANCE, on_step=tell)
        except Cancelled:
            if not (work.is_last_pass and first):
                raise
            work.is_cut = True
            return lower[:first], upper[:first]
        if sided.infeasibility is not None or np.any(sided.lower > sided.upper):
            raise CalibrationInconsistent("all recordings together", "their rows are jointly infeasible")
        limit = np.abs(objectives[part]) @ problem.radius
        lower[part], upper[part] = np.maximum(sided.lower, -limit), np.minimum(sided.upper, limit)
        found = slice(first, min(first + _BATCH, len(before)))
        widths[found] = upper[found] - lower[found]
    work.tell_bounds(1.0, widths / before)
    return lower, upper


def _share(step: int) -> float:
    """Return the estimated share of a solution that these steps of the solver are; their number is unknown."""
    return 1.0 - _LEFT_AFTER_STEP**step


def _narrow(robot: RobotModel, entries: NDArray[np.intp], lower: Array, upper: Array) -> Box | None:
    """Narrow the arm's box by bounds of some of the shared unknowns; None if a body fits nowhere."""
    low, high = robot.theta_box.lower.copy(), robot.theta_box.upper.copy()
    is_arm = entries < low.size
    np.maximum.at(low, entries[is_arm], lower[is_arm])
    np.minimum.at(high, entries[is_arm], upper[is_arm])
    if np.any(low > high):
        return None
    for body in range(1, robot.n + 1):
        part = robot.inertial_slice(body)
        box = tighten(Box(low[part], high[part]))
        if box is None:
            return None
        low[part], high[part] = box.lower, box.upper
    return Box(low, high)


def _nearest_bodies(robot: RobotModel, box: Box, theta: Array) -> Array:
    """Return the bodies inside a box whose parameters are nearest to theta, with its friction, (14 n,)."""
    result = np.clip(theta, box.lower, box.upper)
    for body in range(1, robot.n + 1):
        part = robot.inertial_slice(body)
        size = np.abs(box.center[part]) + box.radius[part]
        # A side without width, as of a product of inertia that the model sets to zero, has no interior.
        inside = Box.around(box.center[part], np.maximum(box.radius[part], 1e-7 * float(size.max())))
        weight = 1.0 / inside.radius**2
        objective = FitObjective(np.diag(weight), weight * (result[part] - inside.center), inside.center)
        nearest = np.clip(
            fit(objective, from_parameters(robot.theta_nominal[part]), inside).theta, box.lower[part], box.upper[part]
        )
        result[part] = nearest if is_physically_consistent(nearest) else robot.theta_nominal[part]
    return result


@dataclass(frozen=True)
class ArmIdentification:
    """A calibration with its bounds of the base parameters.

    Attributes:
        calibration: The calibration.
        base: Base parameters with point estimate, proven bounds, and bounds before.
        constants: The uncertain ones of torque lag, torque gain, direction of gravity and friction behind sensors.
        row_shares: Width of each certified row over that before, rising, (R,) [-].
        gains: Middle of the bounds of each joint's gain, 0 where it is certain, (n,) [-].
    """

    calibration: ArmCalibration
    base: CombinationEstimate
    constants: ConstantBounds
    row_shares: Array
    gains: Array

    @property
    def relative_width(self) -> float:
        """Geometric mean of the widths of the certified rows over those before [-]; 1 without rows."""
        if not self.row_shares.size:
            return 1.0
        return float(np.exp(np.mean(np.log(np.maximum(self.row_shares, 1e-12)))))


def describe_arm(
    robot: RobotModel, calibration: ArmCalibration, settings: EstimatorSettings | None = None
) -> ArmIdentification:
    """Bound base parameters, torque lag, gain and direction of gravity of an arm with the rows of its calibration.

    Args:
        robot: The arm before the calibration.
        calibration: Its calibration.
        settings: The calibration's: they bound torque lag and tilt of gravity, which its rows share.

    Returns:
        Bounds that hold if the calibration's hold: each is proven by its own multipliers (weak duality), so that an
        inexact solver can only widen it.
    """
    names = parameter_names(robot)
    analysis = AnalysisSettings(joint_parameters=felt_joint_parameters(robot))
    combinations = Combinations.of(compare_robot(robot, analysis, _BODIES).snapped, names)
    opened = calibration.record.openings
    settings = replace(settings or EstimatorSettings(), **opened_settings(opened), gripper=calibration.record.gripper)
    robot = open_arm(robot, opened).with_gripper(settings.gripper)
    unknowns = describe_unknowns(robot, settings)
    center, radius = shared_center(unknowns, settings), unknowns.radius
    shared, rows = Box(center - radius, center + radius), Box(calibration.lower, calibration.upper)
    old = hull(calibration.matrix, shared)
    shares = np.minimum(rows.width / np.maximum(old.width, 1e-300), 1.0)
    size, count = len(names), len(combinations)
    constant, of_arm = _constant_entries(robot, unknowns), is_of_arm(robot)[:size]
    padded = np.zeros((count + constant.size, center.size))
    padded[:count, :size], padded[count:] = combinations.matrix, np.eye(center.size)[constant]
    low, high = shared.lower.copy(), shared.upper.copy()
    low[:size] = np.where(of_arm, calibration.box.lower, low[:size])
    high[:size] = np.where(of_arm, calibration.box.upper, high[:size])
    box = Box(low, high)
    found: Box | SidedBounds = hull(padded, box)
    if len(calibration.matrix):
        problem = Problem.of_rows(calibration.matrix, rows, box, padded)
        found = SidedBounds.best_of(problem, [solve_exactly(problem)])
    before = hull(combinations.matrix, robot.theta_box)
    lower, upper = np.maximum(found.lower[:count], before.lower), np.minimum(found.upper[:count], before.upper)
    values = np.clip(combinations.matrix @ calibration.nominal, lower, upper)
    base = CombinationEstimate(
        combinations.names, combinations.formulas, combinations.units, combinations.matrix, values, lower, upper, before
    )
    low, high = shared.lower.copy(), shared.upper.copy()
    low[constant], high[constant] = found.lower[count:], found.upper[count:]
    constants = _describe_constants(robot, unknowns, low, high, shared)
    is_gain = np.isin(constant, unknowns.groups["torque_gain"])
    gains = np.zeros(robot.n)
    gains[constant[is_gain] - 15 * robot.n] = 0.5 * (constants.lower + constants.upper)[is_gain]
    return ArmIdentification(calibration, base, constants, np.sort(shares), gains)
