"""Calibration of an arm: recordings of known loads as certified rows, for random and adversarial truths."""

import copy
import dataclasses
import datetime
import weakref
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from scipy.optimize import linprog
from textbook import load_steady, textbook_file

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import Cancelled, ModelError, ParameterOutOfRange, SysidError
from sysid_ros.core.estimation import calibration as calibration_module
from sysid_ros.core.estimation.calibration import (
    CalibrationInconsistent,
    KnownLoad,
    LoadedRecording,
    Work,
    add_load_cuts,
    calibrate_arm,
    collect_rows,
    describe_arm,
    empty_hand,
    join_recordings,
    reference_weight,
)
from sysid_ros.core.estimation.parameters.estimate import AlarmCode, describe_guarantee
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns, shared_center
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.rows import Rows, calibration_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.estimation.windows.stream import RowStream
from sysid_ros.core.model.calibrated import apply_calibration
from sysid_ros.core.model.calibration import CalibrationRecord, load_calibration, save_calibration
from sysid_ros.core.model.inertia import from_com_form, is_physically_consistent
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters, sample_payload

TODAY = datetime.date(2026, 11, 22)
RECORD = CalibrationRecord(serial="A1", date="2026-11-22", expires="2026-12-31")
SECONDS = 1.5


class TrueWorld:
    """One arm with a gain error, offsets that change from recording to recording, and sensors at their limits."""

    def __init__(self, robot, tools, seed, adversarial, offset_change=0.0):
        self.robot, self.tools, self.adversarial = robot, tools, adversarial
        self.rng = np.random.default_rng(seed)
        self.theta = sample_parameters(robot, self.rng, corner=adversarial)
        draw = self.rng.choice([-1.0, 1.0], 7) if adversarial else self.rng.uniform(-1.0, 1.0, 7)
        self.gain = np.asarray(robot.sensors.effort_gain_error) * draw
        self.offset_change = offset_change

    def record(self, payload, seed, change=0.0):
        """Samples (1 kHz) of a Fourier motion; the offset is off by a share of its largest change."""
        robot, tools = self.robot, self.tools
        theta = self.theta.copy()
        theta[73::4] += change * self.offset_change
        exact = tools.record(robot, theta, payload, tools.FourierMotion(robot, seed), SECONDS)
        sensors, shape = robot.sensors, exact.q.shape
        draw = (
            (lambda: self.rng.choice([-1.0, 1.0], (1, 7)) * np.ones(shape))
            if self.adversarial
            else (lambda: self.rng.uniform(-1.0, 1.0, shape))
        )
        rest = (sensors.effort_relative_error - sensors.effort_gain_error) * np.abs(exact.tau)
        tau = exact.tau * (1.0 + self.gain) + 0.999 * draw() * (rest + sensors.effort_absolute_error)
        step = sensors.position_resolution
        return SampleBlock(
            exact.stamps + 10**9, exact.sequence, np.round(exact.q / step) * step,
            exact.v + 0.999 * draw() * sensors.velocity_error, tau,
        )  # fmt: skip

    @property
    def shared(self):
        """The true shared unknowns in absolute values, with the offsets of later use."""
        return np.concatenate([self.theta, np.zeros(7), -self.gain / (1.0 + self.gain), np.zeros(3)])


@pytest.fixture(scope="module")
def arm(robot, tools):
    """An arm known to 20 %, with a gain error of 2.5 % that is constant and 0.5 % that is not."""
    radius = robot.theta_box.radius.copy()
    radius[:70] += 0.15 * np.abs(robot.theta_nominal[:70])
    wide = dataclasses.replace(robot, theta_box=Box.around(robot.theta_nominal, radius))
    return tools.with_sensors(wide, effort_relative_error=0.03, effort_gain_error=0.025)


def weight_of(arm, seed):
    load = reference_weight(arm, 1.0, 0.002)
    return load, sample_payload(load.prior, np.random.default_rng(seed), corner=True)


def calibrate(world, arm, change=0.0, **options):
    load, body = weight_of(arm, 5)
    recordings = [
        LoadedRecording("empty", [world.record(np.zeros(10), 21, change)], empty_hand()),
        LoadedRecording("weight", [world.record(body, 22, -change)], load),
    ]
    record = dataclasses.replace(RECORD, offset_change=(world.offset_change,) * 7)
    return calibrate_arm(arm, recordings, record, **options)


@pytest.fixture(scope="module")
def calibrated(arm, tools):
    world = TrueWorld(arm, tools, 0, adversarial=True)
    return world, calibrate(world, arm)


def test_windows_are_released_when_their_rows_are_built(arm, tools, monkeypatch):
    known, alive, build = [], [], RowStream.build_rows

    def counted(stream, window):
        known.append(weakref.ref(window.signals(stream.model)))  # these take megabytes
        alive.append(sum(reference() is not None for reference in known))
        return build(stream, window)

    monkeypatch.setattr(RowStream, "build_rows", counted)
    block = TrueWorld(arm, tools, 0, adversarial=False).record(np.zeros(10), 21)
    work = Work(1, lambda progress: None, lambda: False)
    rows, _ = collect_rows(arm, LoadedRecording("a", [block], empty_hand()), EstimatorSettings(), np.zeros(7), work)
    assert len(rows) == 7 * len(alive) and len(alive) > 5 and max(alive) <= 2


@pytest.mark.parametrize(
    ("most", "own", "lost", "expected"),
    [
        (300, 0.1, None, 0.1),  # few windows stay as they are
        (10, 0.1, None, 0.15),
        (2, 0.1, None, 0.2),  # the longest
        (2, 0.4, None, 0.4),  # those asked for are longer
        (2, 0.1, 150, 0.1),  # between losses of samples there is no room for longer ones
    ],
)
def test_many_windows_are_longer_where_gaps_leave_room(arm, tools, monkeypatch, most, own, lost, expected):
    monkeypatch.setattr(calibration_module, "_MOST_WINDOWS", most)
    durations, build = [], RowStream.build_rows

    def noted(stream, window):
        durations.append(stream.model.settings.window_duration)
        return build(stream, window)

    monkeypatch.setattr(RowStream, "build_rows", noted)
    block = TrueWorld(arm, tools, 0, adversarial=False).record(np.zeros(10), 21)
    if lost:
        kept = np.arange(len(block)) % lost != 0
        block = SampleBlock(*(getattr(block, field.name)[kept] for field in dataclasses.fields(block)))
    with pytest.raises(Cancelled):
        calibrate_arm(
            arm, [LoadedRecording("a", [block], empty_hand())], RECORD, EstimatorSettings(window_duration=own),
            is_cancelled=lambda: bool(durations),
        )  # fmt: skip
    assert durations == pytest.approx(np.full(len(durations), expected))


def rows_hold(calibration, shared):
    values = calibration.matrix @ shared
    size = 1e-12 * (np.abs(calibration.matrix) @ np.abs(shared))
    return np.all((calibration.lower <= values + size) & (values - size <= calibration.upper))


def holds(calibration, world):
    return rows_hold(calibration, world.shared) and calibration.box.contains(world.theta)


@pytest.mark.slow
def test_cancelled_in_the_second_pass_it_keeps_what_the_first_one_proved(arm, tools):
    world, told = TrueWorld(arm, tools, 0, adversarial=True), []
    with pytest.raises(Cancelled) as cancelled:
        calibrate(world, arm, on_progress=told.append, is_cancelled=lambda: bool(told) and told[-1].share > 0.5)
    shares = [one.share for one in told]
    assert shares == sorted(shares) and max(np.diff(shares)) < 0.1, "it moves, and never stands for long"
    proven = cancelled.value.partial
    assert not len(proven.matrix) and holds(proven, world) and proven.record.recordings
    assert np.all(proven.box.width <= arm.theta_box.width) and np.any(proven.box.width < 0.9 * arm.theta_box.width)


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "adversarial", "change"), [(1, True, 0.0), (2, False, 0.0), (3, True, 1.0)])
def test_rows_box_and_payload_bounds_hold_the_truth(arm, tools, dumbbell, seed, adversarial, change):
    """The truth of every shared unknown, and of the payload that is identified with them."""
    world = TrueWorld(arm, tools, seed, adversarial, offset_change=0.1 * change)
    calibration = calibrate(world, arm, change)
    assert holds(calibration, world)
    assert len(calibration.matrix) >= 20
    known = apply_calibration(calibration, arm, today=TODAY)
    block = world.record(dumbbell, 30)
    estimates = []
    for robot in (arm, known):
        estimator = StreamingEstimator(robot)
        assert not estimator.add(block)
        estimates.append(estimator.estimate())
        assert estimates[-1].contains(dumbbell)
    assert estimates[1].radius[0] < 0.6 * estimates[0].radius[0]
    assert estimates[1].error_budget["calibration"][0] > 0.0


@pytest.fixture(scope="module")
def known_by_state(robot, tools):
    """The arm calibrated with its gripper closed, and with it in a state that was not stated."""
    arm, found = tools.with_sensors(robot, effort_relative_error=0.03, effort_gain_error=0.025), {}
    for state in ("closed", ""):
        world = TrueWorld(arm.with_gripper(state), tools, 8, adversarial=True)
        recording = LoadedRecording("empty", [world.record(np.zeros(10), 21)], empty_hand())
        calibration = calibrate_arm(arm, [recording], RECORD, EstimatorSettings(gripper=state))
        assert calibration.record.gripper == state and holds(calibration, world)
        found[state] = world, apply_calibration(calibration, arm, today=TODAY)
    return arm, found


@pytest.mark.slow
def test_another_state_of_the_gripper_than_at_the_calibration_is_accounted_for(known_by_state, dumbbell):
    """The gripper of the same arm, moved as far as its states say."""
    arm, found = known_by_state
    world, known = found["closed"]
    last, closed, opened = arm.inertial_slice(7), arm.gripper_state("closed"), arm.gripper_state("open")
    assert set(known.gripper_states) == {"as_calibrated", "open", "closed"}
    moved = copy.copy(world)
    far = opened.change.upper[3] - closed.change.lower[3]
    change = np.where(np.arange(10) == 3, far, opened.change.center - closed.change.center)
    moved.theta = world.theta.copy()
    moved.theta[last] = np.clip(moved.theta[last] + change, opened.box.lower, opened.box.upper)
    assert known.gripper_state("open").change.contains(moved.theta[last] - world.theta[last])
    assert known.with_gripper("open").theta_box.contains(moved.theta)
    assert known.theta_box.contains(moved.theta) and not known.gripper_state("closed").box.contains(moved.theta[last])
    values = known.calibration.matrix @ world.shared  # rows that are as narrow as can be
    narrow = dataclasses.replace(known.calibration, lower=values - 1e-9, upper=values + 1e-9)
    for name, is_held in (("", True), ("open", True), ("as_calibrated", False)):
        settings = EstimatorSettings(gripper=name)
        unknowns = describe_unknowns(known, settings)
        rows = calibration_rows(dataclasses.replace(known, calibration=narrow), unknowns, settings)
        missed = np.abs(rows.b @ (moved.shared - shared_center(unknowns, settings)) - rows.u)
        assert np.all(missed <= rows.errors.sum(axis=1)) == is_held
    radius = {}
    for name, state in (("", moved), ("open", moved), ("closed", world), ("as_calibrated", world)):
        estimator = StreamingEstimator(known, EstimatorSettings(gripper=name, bound_tolerance=1e-3))
        estimator.add(state.record(dumbbell, 30))
        estimate = estimator.estimate()
        assert estimate.contains(dumbbell)
        radius[name] = estimate.radius[3]
    assert radius["as_calibrated"] < radius["closed"] < radius[""]
    sentence = describe_guarantee(EstimatorSettings(gripper="as_calibrated"), "a prior")
    assert "the gripper is as it was when the arm was calibrated, as stated" in sentence


@pytest.mark.slow
def test_a_gripper_whose_state_is_not_stated_may_have_moved_since_the_calibration(known_by_state):
    arm, found = known_by_state
    world, known = found[""]
    last, absolute = arm.inertial_slice(7), arm.gripper_change.upper
    as_it_was, anything = known.gripper_state("as_calibrated").box, known.gripper_state("").box
    widest = as_it_was + Box.around(np.zeros(10), 2.0 * absolute)
    np.testing.assert_allclose(anything.lower, np.maximum(widest.lower, arm.theta_box.lower[last]), rtol=1e-12)
    np.testing.assert_allclose(anything.upper, np.minimum(widest.upper, arm.theta_box.upper[last]), rtol=1e-12)
    with pytest.raises(ParameterOutOfRange, match="gripper 'shut': expected one of as_calibrated, open, closed"):
        known.with_gripper("shut")
    with pytest.raises(ParameterOutOfRange, match="as_calibrated.*not stated"):
        calibrate_arm(arm, [], RECORD, EstimatorSettings(gripper="as_calibrated"))
    other = dataclasses.replace(arm, gripper_states={}, gripper_change=None)
    stated = dataclasses.replace(found["closed"][1].calibration, kinematics=known.calibration.kinematics)
    with pytest.raises(ModelError, match="its state of the gripper is closed; expected one that .* has: none"):
        apply_calibration(stated, other, today=TODAY)


def exact_range(problem, index):
    """Least and largest value of one of all unknowns, target and nuisances in this order, in its radius, by HiGHS."""
    radii = np.concatenate([problem.radius, problem.delta_radius, problem.end_radii])
    matrix = scipy.sparse.hstack([problem.y, problem.b, problem.end_matrix])
    error = np.maximum(problem.error, 1e-15)
    matrix = scipy.sparse.diags_array(1.0 / error) @ matrix @ scipy.sparse.diags_array(radii)
    both = scipy.sparse.vstack([matrix, -matrix]).tocsr()
    limits = np.concatenate([problem.r / error + 1.0, 1.0 - problem.r / error])
    cost = np.zeros(radii.size)
    cost[index] = 1.0
    return tuple(
        sign * linprog(sign * cost, A_ub=both, b_ub=limits, bounds=(-1.0, 1.0), method="highs-ipm").fun
        for sign in (1.0, -1.0)
    )


@pytest.mark.slow
def test_bounds_hold_the_exact_joint_program(arm, calibrated, dumbbell):
    """No bound is narrower than the smallest box of the calibration's rows and all windows, by HiGHS."""
    world, calibration = calibrated
    known = apply_calibration(calibration, arm, today=TODAY)
    settings = EstimatorSettings(use_cone=False, bound_tolerance=1e-3)
    estimator = StreamingEstimator(known, settings)
    estimator.add(world.record(dumbbell, 31))
    estimate = estimator.estimate()
    # The same rows, written out for another solver; compacted rows are part of what the bounds rest on.
    prior = estimator.target.prior
    from sysid_ros.core.estimation.lp.problem import Problem

    unknowns = describe_unknowns(known, settings)
    problem = Problem.build(
        Rows.stack(estimator.stored_windows), prior.center, prior.radius, unknowns.radius, unknowns.end_error
    )
    for index in (0, 3):
        low, high = exact_range(problem, index)
        low, high = prior.center[index] + prior.radius[index] * np.array([low, high])
        slack = 1e-6 * (high - low)
        assert estimate.lower[index] <= low + slack and high - slack <= estimate.upper[index]
        assert estimate.upper[index] - estimate.lower[index] <= 1.1 * (high - low)


@pytest.mark.slow
def test_gains_are_results_with_bounds(arm, calibrated):
    world, calibration = calibrated
    found = describe_arm(arm, calibration).constants
    gains = world.shared[15 * arm.n : 16 * arm.n]
    assert found.names == tuple(f"torque gain of {name}" for name in arm.joint_names) and set(found.units) == {"-"}
    assert np.all((found.lower <= gains) & (gains <= found.upper))
    assert np.any(found.upper - found.lower < 0.9 * found.prior.width)


@pytest.mark.slow
def test_torque_lag_and_direction_of_gravity_are_results_with_bounds(arm, tools):
    """Both are as the model has them, which is inside; so short a motion tells more of gravity than of the lag."""
    world = TrueWorld(arm, tools, 4, adversarial=True)
    settings = EstimatorSettings(torque_lag_tolerance=0.002, gravity_cone=0.03)
    calibration = calibrate(world, arm, settings=settings)
    found = describe_arm(arm, calibration, settings).constants
    assert len(found.names) == 2 * arm.n + 3 and found.units[0] == "s" and found.units[-1] == "m/s^2"
    truth = np.concatenate([np.zeros(arm.n), world.shared[15 * arm.n : 16 * arm.n], np.zeros(3)])
    assert np.all((found.lower <= truth) & (truth <= found.upper))
    share = (found.upper - found.lower) / found.prior.width
    assert share.max() <= 1.0 and share[-3:].min() < 0.9
    own = calibration.constants
    assert own.names == found.names and np.all((own.lower <= truth) & (truth <= own.upper))
    np.testing.assert_allclose(own.upper - own.lower, found.upper - found.lower, atol=0.02 * found.prior.width.max())


@pytest.mark.slow
def test_a_payload_that_moves_as_in_the_calibration_loses_little_by_certified_rows(arm, tools, dumbbell):
    """Against the exact program of all rows of all recordings and of the shapes of their loads, by HiGHS."""
    world, (load, body) = TrueWorld(arm, tools, 6, adversarial=False), weight_of(arm, 5)
    recordings = [
        LoadedRecording("empty", [world.record(np.zeros(10), 21)], empty_hand()),
        LoadedRecording("weight", [world.record(body, 21)], load),
    ]
    calibration = calibrate_arm(arm, recordings, RECORD)
    block = world.record(dumbbell, 21)
    # Every update adds cuts of the shape; the exact program has all of them, but not the box found so far.
    settings = EstimatorSettings(bound_tolerance=1e-3, update_windows=5)
    estimator = StreamingEstimator(apply_calibration(calibration, arm, today=TODAY), settings)
    estimator.add(block)
    estimate = estimator.estimate()
    narrowed = dataclasses.replace(arm, theta_box=calibration.box)
    held = LoadedRecording("payload", [block], KnownLoad("payload", arm.payload_prior))
    parts, none = [], np.zeros(arm.n)
    for recording in (held, *recordings):
        work = Work(1, lambda progress: None, lambda: False)
        parts.append((*collect_rows(narrowed, recording, settings, none, work), recording.load.prior.box))
    joint = add_load_cuts(join_recordings(parts, none), parts, none)  # whose nuisances begin with the payload
    for index in (0, 3):
        low, high = exact_range(joint, joint.radius.size + index)
        exact = 0.5 * (high - low) * arm.payload_prior.box.radius[index]
        assert 0.85 * exact < estimate.radius[index] < 1.1 * exact, (index, exact, estimate.radius[index])


@pytest.mark.slow
def test_what_holds_for_every_load_are_rows_that_no_load_breaks(arm, tools):
    """Mass, first moments and inertia of a weight hang together, which narrows what they can be."""
    world, (load, body) = TrueWorld(arm, tools, 6, adversarial=False), weight_of(arm, 5)
    recordings = [
        LoadedRecording("empty", [world.record(np.zeros(10), 21)], empty_hand()),
        LoadedRecording("weight", [world.record(body, 21)], load),
    ]
    parts, none = [], np.zeros(arm.n)
    for recording in recordings:
        work = Work(1, lambda progress: None, lambda: False)
        parts.append((*collect_rows(arm, recording, EstimatorSettings(), none, work), recording.load.prior.box))
    plain = join_recordings(parts, none)  # whose last nuisances are the ten parameters of the weight
    whole = add_load_cuts(plain, parts, none)
    count = len(whole.r) - len(plain.r)
    assert count > 30 and whole.b.shape[1] == plain.b.shape[1] and not np.any(whole.y[:count])
    np.testing.assert_array_equal(whole.r[count:], plain.r)
    rng, box, of_load = np.random.default_rng(0), load.prior.box, whole.b[:count, -10:]
    assert not np.any(whole.b[:count, :-10])
    for k in range(200):
        x = sample_payload(load.prior, rng, corner=k % 2 == 0) - box.center
        assert np.all(np.abs(whole.r[:count] - of_load @ x) <= whole.error[:count])
    wide = box.lower + rng.uniform(0.0, 1.0, (200, 10)) * box.width - box.center
    assert np.mean(np.any(np.abs(whole.r[:count] - wide @ of_load.T) > whole.error[:count], axis=1)) > 0.9
    first = plain.radius.size + plain.delta_radius.size - 10
    for index in (4, 6):
        narrow, before = (np.ptp(exact_range(joint, first + index)) for joint in (whole, plain))
        assert narrow < 0.9 * before


def test_nominal_parameters_are_bodies_inside_the_box(arm, calibrated):
    _, calibration = calibrated
    assert calibration.box.contains(calibration.nominal)
    for body in range(1, 8):
        assert is_physically_consistent(calibration.nominal[arm.inertial_slice(body)])
    applied = apply_calibration(calibration, arm, today=TODAY)
    assert np.all(applied.theta_box.width <= arm.theta_box.width)
    for body in range(1, 8):
        model = applied.pin_model.inertias[body].toDynamicParameters()
        np.testing.assert_allclose(model, calibration.nominal[arm.inertial_slice(body)], atol=1e-12)


def test_a_file_keeps_every_digit_and_is_read_by_load_robot(calibrated, robot, tmp_path):
    _, calibration = calibrated
    today = datetime.date.today().isoformat()
    record = dataclasses.replace(calibration.record, date=today, expires=None)
    calibration = dataclasses.replace(calibration, record=record)
    save_calibration(calibration, tmp_path / "arm.yaml")
    again = load_calibration(tmp_path / "arm.yaml")
    for name in ("matrix", "lower", "upper", "nominal"):
        np.testing.assert_array_equal(getattr(again, name), getattr(calibration, name))
    assert again.constants.names == tuple(f"torque gain of {name}" for name in robot.joint_names)
    for name in ("lower", "upper"):
        np.testing.assert_array_equal(getattr(again.constants, name), getattr(calibration.constants, name))
        np.testing.assert_array_equal(getattr(again.constants.prior, name), getattr(calibration.constants.prior, name))
    assert np.any(again.constants.upper - again.constants.lower < 0.9 * again.constants.prior.width)
    assert again.record == calibration.record and again.record.data
    assert len(again.record.recordings) == 2 and "reference weight 1 kg" in again.record.recordings[1]
    settings = Path(textbook_file()).read_text() + "\ncalibration: arm.yaml\n"
    (tmp_path / "kinova_gen3_2f85.yaml").write_text(settings.replace("relative: 0.05", "relative: 0.2"))
    loaded = load_robot(tmp_path / "kinova_gen3_2f85.yaml")
    assert loaded.calibration is not None and loaded.calibration.record.serial == "A1"
    as_it_was = loaded.with_gripper("as_calibrated").theta_box
    assert np.all(as_it_was.lower >= calibration.box.lower)
    assert load_robot(tmp_path / "kinova_gen3_2f85.yaml", calibration=tmp_path / "arm.yaml").calibration is not None


def test_calibrations_that_cannot_be_used_are_refused(calibrated, arm, tmp_path):
    _, calibration = calibrated
    with pytest.raises(ModelError, match="arm.yaml: its last day is 2026-12-31; expected today or later"):
        apply_calibration(calibration, arm, "arm.yaml", datetime.date(2027, 1, 1))
    other = dataclasses.replace(arm, name="kuka_lbr_med7")
    with pytest.raises(ModelError, match="its robot is kinova_gen3_2f85; expected kuka_lbr_med7"):
        apply_calibration(calibration, other, today=TODAY)
    tilted = dataclasses.replace(arm, pin_model=arm.pin_model.copy())
    tilted.pin_model.gravity.linear = np.array([0.0, 1.0, -9.7])
    with pytest.raises(ModelError, match="its model is another one"):
        apply_calibration(calibration, tilted, today=TODAY)
    moved = dataclasses.replace(arm, theta_box=arm.theta_box + Box.around(np.full(98, 50.0), np.zeros(98)))
    with pytest.raises(ModelError, match="misses in 98 parameters: another arm"):
        apply_calibration(calibration, moved, today=TODAY)
    bad = dataclasses.replace(calibration, record=dataclasses.replace(RECORD, date="yesterday"))
    with pytest.raises(ModelError, match="date is yesterday"):
        apply_calibration(bad, arm, today=TODAY)
    for text, match in (("{", "cannot read "), ("format: 2", "its format is 2"), ("[1]", "its format is list")):
        (tmp_path / "bad.yaml").write_text(text)
        with pytest.raises(ModelError, match=match):
            load_calibration(tmp_path / "bad.yaml")
    save_calibration(calibration, tmp_path / "good.yaml")
    damaged = (tmp_path / "good.yaml").read_text().replace("nominal:", "nominals:")
    (tmp_path / "bad.yaml").write_text(damaged)
    with pytest.raises(ModelError, match="damaged"):
        load_calibration(tmp_path / "bad.yaml")
    with pytest.raises(ModelError, match="not finite or empty"):
        dataclasses.replace(calibration, lower=calibration.upper + 1.0)


def test_data_that_contradict_the_calibration_raise_an_alarm_that_names_it(arm, calibrated, tools, dumbbell):
    """Another arm than the one that was calibrated."""
    world, calibration = calibrated
    other = TrueWorld(arm, tools, 9, adversarial=False)
    other.theta, other.gain = 2.0 * arm.theta_nominal - world.theta, -world.gain  # the other side of every box
    estimator = StreamingEstimator(apply_calibration(calibration, arm, today=TODAY))
    block = other.record(0.3 * dumbbell, 33)
    notices = estimator.add(block)
    alarm = estimator.estimate().alarm
    assert alarm is not None and alarm.code in (AlarmCode.JOINTLY_INCONSISTENT, AlarmCode.WINDOW_INCONSISTENT)
    assert notices and alarm.joint in arm.joint_names
    assert "the windows and the calibration of the arm are jointly infeasible" in alarm.text
    without = StreamingEstimator(arm)
    assert not without.add(block)


def test_a_weight_that_was_not_attached_is_found(arm, tools):
    world = TrueWorld(arm, tools, 4, adversarial=False)
    load, _ = weight_of(arm, 5)
    recordings = [
        LoadedRecording("empty", [world.record(np.zeros(10), 21)], empty_hand()),
        LoadedRecording("weight", [world.record(np.zeros(10), 22)], load),
    ]
    with pytest.raises(CalibrationInconsistent, match="was the stated load attached") as raised:
        calibrate_arm(arm, recordings, RECORD)
    assert raised.value.remedies == ("if nothing was attached in weight",)


def test_a_weight_that_hangs_elsewhere_is_found(arm, tools):
    """The commonest mistake: its mass was weighed, and the place of its centre of mass read off with a ruler."""
    world = TrueWorld(arm, tools, 4, adversarial=False)
    mass, shape = 2.0, arm.payload_prior.shape
    true = from_com_form(mass, shape.com.center, 0.004 * np.eye(3))
    stated = Box.around(shape.com.center + [0.0, 0.0, 0.05], np.full(3, 0.002))
    recordings = [
        LoadedRecording("empty", [world.record(np.zeros(10), 21)], empty_hand()),
        LoadedRecording("weight", [world.record(true, 22)], reference_weight(arm, mass, 0.002, stated)),
    ]
    with pytest.raises(CalibrationInconsistent) as raised:
        calibrate_arm(arm, recordings, RECORD)
    assert raised.value.remedies == ("if the centre of mass in weight is not where it was stated",)
    assert "the data agree if the centre of mass in weight" in str(raised.value)


def test_nothing_useful_is_refused_and_work_can_be_cancelled(arm, tools):
    with pytest.raises(SysidError, match="no recording to calibrate from"):
        calibrate_arm(arm, [], RECORD)
    world = TrueWorld(arm, tools, 6, adversarial=False)
    block = world.record(np.zeros(10), 21)
    short = LoadedRecording("short", [block.slice(0, 40)], empty_hand())
    with pytest.raises(SysidError, match="short: the longest recording without a gap"):
        calibrate_arm(arm, [short], RECORD)
    calls = []
    whole = LoadedRecording("empty", [block], empty_hand())
    with pytest.raises(Cancelled):
        calibrate_arm(arm, [whole], RECORD, is_cancelled=lambda: len(calls) >= 1, on_progress=calls.append)
    with pytest.raises(SysidError, match="invalid tolerance of a known load"):
        reference_weight(arm, 1.0, 1.0)


def test_of_a_long_rest_few_windows_are_rows(arm, monkeypatch):
    """With a load that is known nothing changes while the arm rests."""
    windows, told = [], []

    def build_rows(stream, window, original=RowStream.build_rows):
        windows.append(window.number)
        return original(stream, window)

    monkeypatch.setattr(RowStream, "build_rows", build_rows)
    count, ones = 30_000, np.ones((30_000, 7))
    rest = SampleBlock(10**9 + 10**6 * np.arange(count), np.arange(count), arm.home * ones, 0.0 * ones, 0.0 * ones)
    with pytest.raises(Cancelled):
        calibrate_arm(
            arm, [LoadedRecording("rest", [rest], empty_hand())], RECORD, on_progress=told.append,
            is_cancelled=lambda: bool(told) and told[-1].phase.startswith("windows"),
        )  # fmt: skip
    assert 5 <= len(windows) <= 9, "five at first, then one every ten seconds"


def test_a_target_that_is_part_of_the_arm_leaves_the_calibration_out(arm, calibrated, dumbbell):
    world, calibration = calibrated
    known = apply_calibration(calibration, arm, today=TODAY)
    estimator = StreamingEstimator(known, EstimatorSettings(target="end_effector"))
    assert not estimator.add(world.record(dumbbell, 34))
    truth = world.theta[60:70] + dumbbell
    assert estimator.estimate().contains(truth)
    assert estimator.estimate().error_budget["calibration"][0] == 0.0
    assert ERROR_TERMS[-1] == "rounding"


def test_a_reference_weight_is_an_object_of_the_prior_with_its_mass(arm):
    load = reference_weight(arm, 2.0, 0.01)
    shape = arm.payload_prior.shape
    nominal = from_com_form(2.0, shape.com.center, shape.gyration**2 * np.eye(3))
    np.testing.assert_allclose(load.prior.nominal, nominal, atol=1e-12)
    assert load.prior.box.contains(nominal) and load.prior.box.lower[0] == 1.99 and load.prior.box.upper[0] == 2.01


def test_an_arm_whose_products_of_inertia_are_exactly_zero_is_calibrated(tools):
    """Their boxes are rounded outwards, to radii of 5e-324."""
    lbr = load_steady("kuka_lbr_med7")
    assert np.sum(lbr.theta_box.radius < 1e-300) > 10
    world = TrueWorld(lbr, tools, 3, adversarial=False)
    block = world.record(np.zeros(10), 21).slice(0, 800)
    calibration = calibrate_arm(lbr, [LoadedRecording("empty", [block], empty_hand())], RECORD)
    assert holds(calibration, world)
    gears = np.delete(lbr.friction(calibration.nominal), 3, axis=1)
    np.testing.assert_array_equal(
        gears, np.delete(lbr.friction(lbr.theta_nominal), 3, axis=1), "efforts say nothing of them"
    )
    assert apply_calibration(calibration, lbr, today=TODAY).theta_box.contains(world.theta)


@pytest.mark.slow
def test_friction_behind_the_sensor_of_a_link_side_arm_is_a_result_with_bounds(tools):
    """It is no parameter of the arm, whose box is about the gears; the offset is."""
    lbr = load_steady("kuka_lbr_med7")
    settings = EstimatorSettings(friction_range=0.5)
    world = TrueWorld(lbr, tools, 3, adversarial=True)
    largest = lbr.friction(lbr.theta_box.upper)
    behind = 0.5 * largest * world.rng.uniform(0.0, 1.0, (7, 4)) * [1.0, 1.0, 0.0, 0.0]
    behind[:, 3] = lbr.friction(world.theta)[:, 3]
    felt = copy.copy(world)
    felt.robot = tools.with_sensors(lbr, effort_meaning=EffortMeaning.MOTOR_SIDE)
    felt.theta = world.theta.copy()
    felt.theta[70:] = behind.ravel()
    recording = LoadedRecording("empty", [felt.record(np.zeros(10), 21).slice(0, 1000)], empty_hand())
    calibration = calibrate_arm(lbr, [recording], RECORD, settings)
    assert rows_hold(calibration, felt.shared) and len(calibration.matrix) > 10
    assert calibration.box.contains(world.theta), "the friction of the gears is as it was"
    np.testing.assert_array_equal(lbr.friction(calibration.box.width)[:, :3], lbr.friction(lbr.theta_box.width)[:, :3])
    found = calibration.constants
    assert found.names[0] == "F_c behind the sensor of lbr_A1" and found.units[:2] == ("Nm", "Nm s/rad")
    truth = np.concatenate([behind[:, :2].ravel(), felt.shared[15 * 7 : 16 * 7]])[: len(found)]
    assert np.all((found.lower <= truth) & (truth <= found.upper))
    assert np.any((found.upper - found.lower)[:14] < 0.8 * found.prior.width[:14])
    with pytest.raises(CalibrationInconsistent):  # none is assumed
        calibrate_arm(lbr, [recording], RECORD)
