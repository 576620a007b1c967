"""What a motion with the empty hand tells of the arm: rows that hold, bounds that shrink, and tares that are none."""

import dataclasses

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.calibration import with_known_mass
from sysid_ros.core.estimation.parameters.estimate import Quantity
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns, shared_center
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.tare import make_tare
from sysid_ros.core.estimation.windows.rows import COMPACTED, TARED
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.sampling import sample_parameters

SECONDS, LATER = 3.0, 60.0
"""How long each motion lasts, and when the one with the payload begins [s]."""
EMPTY, HALF = np.zeros(10), 0.35
"""No payload; half of a period of vibration [s]."""


class World:
    """One arm at a corner of its box with gains at their limits, whose other torque errors have a sign that lasts."""

    def __init__(self, robot, tools, seed):
        self.robot, self.tools, self.rng = robot, tools, np.random.default_rng(seed)
        self.theta = sample_parameters(robot, self.rng, corner=True)
        self.gain = np.asarray(robot.sensors.effort_gain_error) * self.rng.choice([-1.0, 1.0], 7)

    def record(self, payload, seed, begin=1.0, friction=None, seconds=SECONDS):
        """Samples (1 kHz) of a Fourier motion from a time on [s], with other friction and offsets where given."""
        theta = self.theta.copy()
        theta[70:] = theta[70:] if friction is None else friction
        exact = self.tools.record(self.robot, theta, payload, self.tools.FourierMotion(self.robot, seed), seconds)
        sensors, sign = self.robot.sensors, self.rng.choice([-1.0, 1.0], (1, 7))
        rest = (sensors.effort_relative_error - sensors.effort_gain_error) * np.abs(exact.tau)
        lasting = np.minimum(sensors.effort_mean_error, sensors.effort_absolute_error)
        tau = exact.tau * (1.0 + self.gain) + 0.999 * sign * (rest + lasting)
        # Vibration that uses the whole bound of its integral in every half of a period.
        wave = np.where(np.floor(exact.seconds / HALF + 1e-6) % 2 == 0, 1.0, -1.0)[:, None]
        integral = np.where(lasting < sensors.effort_absolute_error, sensors.effort_integral_error, 0.0)
        tau = tau + 0.99 * sign * wave * integral / HALF
        step = sensors.position_resolution
        stamps, number = exact.stamps + round(1e9 * begin), exact.sequence + round(1e3 * begin)
        return SampleBlock(stamps, number, np.round(exact.q / step) * step, exact.v, tau)

    def shared(self, friction=None):
        """The true shared unknowns in absolute values."""
        theta = self.theta.copy()
        theta[70:] = theta[70:] if friction is None else friction
        return np.concatenate([theta, np.zeros(7), -self.gain / (1.0 + self.gain), np.zeros(3)])


@pytest.fixture(scope="module")
def arm(robot, tools):
    """An arm with a gain error of 2.5 % that is constant and 0.5 % that is not."""
    return tools.with_sensors(robot, effort_relative_error=0.03, effort_gain_error=0.025)


@pytest.fixture(scope="module")
def sharp(arm, tools):
    """The same arm with sensors that hide little."""
    torque = {"effort_relative_error": 1e-4, "effort_gain_error": 0.0, "effort_absolute_error": 1e-3}
    return tools.with_sensors(arm, **torque, velocity_error=1e-5, position_resolution=1e-6)


def excess(tare, arm, settings, stamp_ns, shared):
    """By how much rows are broken at most, in units of their errors: the truth must be within."""
    unknowns = describe_unknowns(arm, settings)
    rows = tare.rows_at(arm, unknowns, settings, stamp_ns)
    assert np.all(rows.window == TARED) and not rows.y.any()
    delta = shared - shared_center(unknowns, settings)
    return float(np.max(np.abs(rows.b @ delta - rows.u) / rows.error))


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_true_arm_keeps_every_row_also_where_friction_and_offsets_drift(sharp, tools, seed):
    settings, world = EstimatorSettings(tare_drift=2e-3), World(sharp, tools, seed)
    unknowns = describe_unknowns(sharp, settings)
    largest = np.array([unknowns.coulomb_upper, unknowns.viscous_upper, np.zeros(7), unknowns.offset_upper]).T.ravel()
    now, center = world.theta[70:], sharp.theta_box.center[70:]
    then = now - np.sign(now - center) * settings.tare_drift * LATER * largest  # inside the box, which held then, too
    assert np.all(np.abs(then - center) <= sharp.theta_box.radius[70:] + 1e-12)
    tare = make_tare(sharp, [world.record(EMPTY, 3, friction=then)], settings)
    assert excess(tare, sharp, settings, 10**9, world.shared(then)) <= 1.0
    stamp = round(1e9 * (LATER + 1.0))
    assert excess(tare, sharp, settings, stamp, world.shared()) <= 1.0
    assert excess(tare, sharp, dataclasses.replace(settings, tare_drift=0.0), stamp, world.shared()) > 1.0
    assert 0.0 < tare.share <= 1.0 and tare.seconds == pytest.approx(SECONDS, abs=0.2)


@pytest.mark.parametrize("seed", [0, 1])
def test_another_state_of_the_gripper_than_at_the_tare_is_accounted_for(sharp, tools, seed):
    opened, world = EstimatorSettings(gripper="open"), World(sharp.with_gripper("open"), tools, seed)
    closed, last = dataclasses.replace(opened, gripper="closed"), sharp.inertial_slice(7)
    change = {name: sharp.gripper_state(name).change for name in ("open", "closed")}
    signs = world.rng.choice([-1.0, 1.0], 10)
    # Of the same gripper: what it makes of the last body is known to the radius of each state.
    moved = change["closed"].center - change["open"].center + 0.9 * signs * change["closed"].radius
    tare, shared = make_tare(sharp, [world.record(EMPTY, 4)], opened), world.shared()
    assert excess(tare, sharp, opened, 10**9, shared) <= 1.0
    shared[last] += moved
    assert excess(tare, sharp, closed, 10**9, shared) <= 1.0
    tight = dataclasses.replace(sharp, gripper_states={name: sharp.gripper_state("open") for name in change})
    assert excess(tare, tight, closed, 10**9, shared) > 1.0


def identify(arm, block, tare=None):
    found = []
    estimator = StreamingEstimator(arm, on_update=found.append, tare=tare)
    estimator.add(block)
    return [*found, estimator.estimate()]


@pytest.mark.parametrize("seed", [0, 1])
def test_bounds_of_a_payload_shrink_and_hold_the_truth(arm, tools, dumbbell, seed):
    world = World(arm, tools, seed)
    tare = make_tare(arm, [world.record(EMPTY, 5, seconds=6.0)], EstimatorSettings())
    block = world.record(dumbbell, 6, LATER)
    without, known = identify(arm, block), identify(arm, block, tare)
    assert all(one.is_consistent and one.contains(dumbbell) for one in [*without, *known])
    assert "the hand was empty at the tare" in known[-1].guarantee and "tare" not in without[-1].guarantee
    assert known[-1].radius[0] < 0.7 * without[-1].radius[0]
    assert np.all(known[-1].radius <= 1.02 * without[-1].radius)


def test_vibration_is_shared_by_windows_of_both_runs_also_where_windows_are_compacted(arm, tools, dumbbell):
    vibrating = tools.with_sensors(
        arm, effort_absolute_error=1.0, effort_mean_error=0.02, effort_integral_error=0.005, effort_is_held=True
    )
    world, settings = World(vibrating, tools, 1), EstimatorSettings(max_windows=20, update_windows=5)
    tare = make_tare(vibrating, [world.record(EMPTY, 5, seconds=6.0)], settings)
    assert tare.rows.ends.any() and 0.2 < tare.share < 1.0
    alone = dataclasses.replace(tare, rows=dataclasses.replace(
        tare.rows, ends=np.zeros_like(tare.rows.ends),
        errors=tare.rows.errors + np.eye(len(ERROR_TERMS))[ERROR_TERMS.index("torque_absolute")] * 0.005 / 0.975,
    ))  # fmt: skip
    widths, block = [], world.record(dumbbell, 6, LATER, seconds=6.0)
    for one in (tare, alone):
        estimator = StreamingEstimator(vibrating, settings, tare=one)
        estimator.add(block)
        assert estimator.estimate().contains(dumbbell) and any(
            part.window[0] == COMPACTED for part in estimator.stored_windows
        )
        widths.append(estimator.estimate().radius)
    assert np.all(widths[0] < 1.02 * widths[1]) and widths[0][0] < widths[1][0]


def test_the_estimator_keeps_a_tare_over_payloads_and_forgets_it_with_the_driver(arm, tools, dumbbell):
    world, estimator = World(arm, tools, 3), StreamingEstimator(arm)
    with pytest.raises(SysidError, match="there is no tare to end: none was begun"):
        estimator.end_tare()
    estimator.begin_tare()
    estimator.add(world.record(EMPTY, 5))
    estimator.end_tare()
    tare = estimator.tare
    estimator.end_tare()  # asked again, as the answer was late
    assert estimator.tare is tare and str(tare).startswith("tare of 3.0 s, ")
    for number in (1, 2):
        estimator.reset("another payload")
        estimator.add(world.record(dumbbell, 6, LATER * number))
        rows = estimator.stored_windows
        assert any(part.window[0] == TARED for part in rows) and estimator.estimate().contains(dumbbell)
    estimator.forget_tare("another driver")
    estimator.add(world.record(dumbbell, 6, 3.0 * LATER))
    assert all(part.window[0] != TARED for part in estimator.stored_windows)
    with pytest.raises(SysidError, match="there is no tare to end: another driver"):
        estimator.end_tare()


def test_something_in_the_hand_is_no_tare(arm, tools, dumbbell):
    block = World(arm, tools, 4).record(0.7 * dumbbell, 5)
    with pytest.raises(
        SysidError, match="of the errors that are allowed with an empty hand: something was in the hand"
    ):
        make_tare(arm, [block], EstimatorSettings())


def test_a_payload_that_is_taken_up_during_a_tare_ends_it(arm, tools, dumbbell):
    world, estimator = World(arm, tools, 5), StreamingEstimator(arm)
    estimator.begin_tare()
    estimator.add(world.record(EMPTY, 5))
    estimator.reset("the payload was announced to have changed")
    estimator.add(world.record(dumbbell, 6, LATER))
    with pytest.raises(SysidError, match="no tare to end: the payload was announced to have changed"):
        estimator.end_tare()
    estimator.begin_tare()
    estimator.add(world.record(EMPTY, 5, 2.0 * LATER))
    estimator.add(world.record(EMPTY, 5, 2.0 * LATER + 400.0))
    with pytest.raises(SysidError, match="it took more than 300 s"):
        estimator.end_tare()


def test_too_little_motion_and_other_targets_are_refused(arm, tools):
    block = World(arm, tools, 6).record(EMPTY, 5, seconds=1.0)
    with pytest.raises(SysidError, match=r"the arm moved for 1\.0 s; a tare takes 2 s at least"):
        make_tare(arm, [block], EstimatorSettings())
    with pytest.raises(SysidError, match=r"moved for 0\.0 s.* \(no samples have come\)"):
        make_tare(arm, [], EstimatorSettings())
    with pytest.raises(SysidError, match="an estimator of the payload by itself"):
        make_tare(load_textbook("kinova_gen3_2f85:safe_id_table_1"), [block], EstimatorSettings(target="end_effector"))


def test_an_alarm_names_the_tare_that_the_data_contradict(sharp, tools, dumbbell):
    """The tare is of an arm with other offsets, as after a restart that nobody has noticed."""
    world = World(sharp, tools, 7)
    shift = 1.8 * sharp.theta_box.radius[70:] * np.tile([0.0, 0.0, 0.0, 1.0], 7)
    then = world.theta[70:] - np.sign(world.theta[70:] - sharp.theta_box.center[70:]) * shift
    tare = make_tare(sharp, [world.record(EMPTY, 5, friction=then)], EstimatorSettings())
    last = identify(sharp, world.record(dumbbell, 6, LATER), tare)[-1]
    assert not last.is_consistent
    assert "nothing in the hand at the tare" in last.alarm_text and "take the tare again" in last.alarm_text


def test_a_mass_from_a_scale_narrows_what_else_is_known_and_a_wrong_one_is_noticed(sharp, tools, dumbbell):
    world = World(sharp, tools, 5)
    tare = make_tare(sharp, [world.record(EMPTY, 1)], EstimatorSettings())
    block, mass = world.record(dumbbell, 2, LATER), float(dumbbell[0])
    found = {}
    for name, robot in (
        ("unknown", sharp),
        ("weighed", with_known_mass(sharp, mass, 0.002)),
        ("wrong", with_known_mass(sharp, 1.1 * mass, 0.002)),
    ):
        estimator = StreamingEstimator(robot, tare=tare)
        estimator.add(block)
        estimator.complete()
        found[name] = estimator.estimate()
    unknown, weighed = found["unknown"], found["weighed"]
    assert unknown.contains(dumbbell) and weighed.contains(dumbbell)
    assert weighed.upper[0] - weighed.lower[0] <= 0.0041
    assert np.all(weighed.radius <= 1.02 * unknown.radius) and weighed.radius[1:4].sum() < unknown.radius[1:4].sum()
    assert Quantity.MASS in weighed.narrower and f"weighed: {mass:g} kg +- 0.002 kg" in weighed.guarantee
    assert not found["wrong"].is_consistent
