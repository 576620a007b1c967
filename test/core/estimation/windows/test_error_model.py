"""Errors that stay constant or vanish in the mean: exact in the rows as shared unknowns, or counted with the mean."""

import dataclasses

import numpy as np
import pytest
from textbook import textbook_file

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.estimation.lp.problem import Problem
from sysid_ros.core.estimation.parameters.settings import ERROR_TERMS, SHARED_TERMS, EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.errors import integrate_torque
from sysid_ros.core.estimation.windows.rows import Rows
from sysid_ros.core.estimation.windows.stream import RowStream
from sysid_ros.core.model.loader import load_robot_from_urdf
from sysid_ros.core.model.robot import EffortMeaning
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

GAIN = 16 * 7 - 7


@pytest.fixture(scope="module")
def world(robot, tools):
    theta = sample_parameters(robot, np.random.default_rng(0), corner=True)
    return tools.perfect_sensors(robot), theta, tools.FourierMotion(robot, 3)


def residual(robot, block, theta, payload, gain=0.0, settings=None):
    """Residual (R,) of the truth and the budget of every term."""
    settings = settings or EstimatorSettings()
    unknowns = describe_unknowns(robot, settings)
    stream = RowStream(robot, settings, unknowns)
    rows = Rows.stack([stream.build_rows(window) for window in stream.add(block)[0]])
    problem = Problem.build(rows, payload, np.zeros(10), unknowns.radius, unknowns.end_error)
    delta = np.zeros(unknowns.radius.size)
    delta[: 14 * robot.n] = theta - unknowns.center
    delta[GAIN : GAIN + robot.n] = gain
    assert np.all(np.abs(delta) <= unknowns.radius * (1.0 + 1e-12))
    terms = dict(zip(ERROR_TERMS, rows.errors.T, strict=True))
    is_torque = problem.end_term == SHARED_TERMS.index("torque_absolute")
    terms["vibration"] = np.abs(problem.ends).sum(axis=1) @ (problem.end_radius * is_torque)
    return problem.b @ delta - problem.r, terms


def scaled(block, factor):
    return dataclasses.replace(block, tau=block.tau * factor)


@pytest.mark.parametrize("is_held", [True, False])
def test_constant_gain_is_exact_in_the_rows(world, tools, dumbbell, is_held):
    perfect, theta, motion = world
    robot = tools.with_sensors(perfect, effort_relative_error=0.04, effort_gain_error=0.04, effort_is_held=is_held)
    block = tools.record(robot, theta, dumbbell, motion, 1.0)
    gain = np.random.default_rng(1).choice([-0.04, 0.04], 7)
    off, terms = residual(robot, scaled(block, 1.0 + gain), theta, dumbbell, gain=-gain / (1.0 + gain))
    allowed = terms["quadrature"] + terms["coulomb"] + terms["rounding"] + terms["torque_interpolation"]
    assert np.all(np.abs(off) <= allowed)
    assert np.all(terms["torque_relative"] <= 1e-15)
    wrong, _ = residual(robot, scaled(block, 1.0 + gain), theta, dumbbell)
    assert np.any(np.abs(wrong) > allowed), "the gain matters"


@pytest.mark.parametrize("refers_to", ["true", "measured"])
def test_rest_beyond_the_gain_covers_both_conventions(robot, tools, refers_to):
    sensors = tools.with_sensors(
        robot, effort_relative_error=0.1, effort_gain_error=0.06, effort_absolute_error=0.3
    ).sensors
    rng = np.random.default_rng(2)
    true = rng.uniform(-30.0, 30.0, (2000, 7))
    gain, sign = rng.choice([-0.06, 0.06], 7), rng.choice([-1.0, 1.0], (2000, 7))
    if refers_to == "true":
        measured = (1.0 + gain) * true + sign * (0.04 * np.abs(true) + 0.3)
    else:  # |rest| = 0.04 |measured| + 0.3, solved for the measured torque
        rest = sign * 0.3
        measured = ((1.0 + gain) * true + rest) / (1.0 - 0.04 * sign * np.sign((1.0 + gain) * true + rest))
        assert np.abs(np.abs(measured - (1.0 + gain) * true) - (0.04 * np.abs(measured) + 0.3)).max() < 1e-9
    error = np.abs(true - measured / (1.0 + gain))
    relative, absolute = sensors.sample_error(measured)
    assert np.all(error <= (relative + absolute) * (1.0 + 1e-12))
    assert np.max(error / (relative + absolute)) > 0.85


def test_the_lasting_part_counts_in_each_window_and_vibration_at_its_ends(robot, tools):
    sensors = tools.with_sensors(
        robot, effort_relative_error=0.02, effort_absolute_error=0.5, stamp_jitter=0.0, effort_is_held=True
    ).sensors
    bounded = dataclasses.replace(sensors, effort_mean_error=np.full(7, 0.01), effort_integral_error=np.full(7, 0.03))
    seconds, tau = np.arange(0.0, 0.3, 0.001), np.ones((300, 7))
    plain = integrate_torque(seconds, tau, 0.0, 0.25, sensors)
    lasting = integrate_torque(seconds, tau, 0.0, 0.25, bounded)
    # What the relative part grows by with the error of a sample lasts.
    assert lasting.absolute == pytest.approx(np.full(7, 0.25 * (0.01 + 0.02 * 0.5 / 0.98)), rel=1e-9)
    assert plain.absolute == pytest.approx(np.full(7, 0.25 * 0.5 / 0.98), rel=1e-9)
    held_back = integrate_torque(seconds, tau, 0.0, 0.25, dataclasses.replace(bounded, effort_is_held=False))
    assert np.all(held_back.absolute >= plain.absolute * 0.999), "between samples nothing is said of the integral"
    unknowns = describe_unknowns(dataclasses.replace(robot, sensors=bounded), EstimatorSettings())
    assert unknowns.end_error[-7:] == pytest.approx(np.full(7, 0.5 * 0.03), rel=1e-9)


def test_an_error_with_a_bounded_integral_is_a_lasting_one_and_one_that_vibrates():
    """The lemma behind shared ends, for random errors: S as in :func:`integral_bound` exists and does what it says."""
    rng, period = np.random.default_rng(8), 0.01
    for _ in range(20):
        integral = np.concatenate([[0.0], np.cumsum(rng.normal(size=200)) * period])
        apart = np.abs(np.subtract.outer(np.arange(201), np.arange(201))) * period
        mean = rng.uniform(0.0, 1.0)
        beyond = np.max(np.abs(np.subtract.outer(integral, integral)) - mean * apart)
        slow = np.min(integral[:, None] + mean * apart, axis=0)
        assert np.all(np.abs(np.diff(slow)) <= mean * period * (1.0 + 1e-12))
        assert np.all(slow <= integral) and np.all(integral <= slow + beyond + 1e-12)


@pytest.mark.parametrize("held", [0.003, 0.5])
def test_vibration_of_many_windows_adds_up_to_no_more_than_that_of_one(world, tools, dumbbell, held):
    """A square wave, fast or as long as windows: each window keeps its budget, and so does the sum of all of them."""
    perfect, theta, motion = world
    size = 0.012 / held
    bounds = {"effort_absolute_error": size + 1.0, "effort_mean_error": 0.0, "effort_integral_error": 0.012}
    robot = tools.with_sensors(perfect, **bounds)
    block = tools.record(robot, theta, dumbbell, motion, 2.0)
    wave = np.where(np.floor(block.seconds / held + 1e-6) % 2 == 0, 1.0, -1.0)[:, None] * 0.99 * size
    off, terms = residual(robot, dataclasses.replace(block, tau=block.tau + wave), theta, dumbbell)
    others = terms["quadrature"] + terms["coulomb"] + terms["rounding"] + terms["torque_relative"]
    assert np.all(np.abs(off) <= terms["vibration"] + others)
    assert terms["vibration"] == pytest.approx(np.full(off.size, 0.012))
    assert np.max(np.abs(off)) > 0.5 * 0.012, "a single window shows it"
    together = np.abs(off.reshape(-1, robot.n).sum(axis=0))
    assert np.all(together <= 0.012 + others.reshape(-1, robot.n).sum(axis=0))


def test_drift_of_the_offset_grows_with_time(world, tools, dumbbell):
    perfect, theta, motion = world
    robot = tools.with_sensors(perfect, effort_drift=0.05)
    block = tools.record(robot, theta, dumbbell, motion, 2.0)
    drift = 0.05 * block.seconds[:, None] * np.array([1, -1, 1, -1, 1, -1, 1.0])
    off, terms = residual(robot, dataclasses.replace(block, tau=block.tau + drift), theta, dumbbell)
    others = terms["quadrature"] + terms["coulomb"] + terms["rounding"]
    assert np.all(np.abs(off) <= terms["torque_drift"] + others)
    assert np.max(np.abs(off) / (terms["torque_drift"] + others)) > 0.8
    assert terms["torque_drift"][-1] > 10.0 * terms["torque_drift"][0]


@pytest.mark.slow
def test_bounds_with_gain_mean_and_drift_hold_the_truth(robot, tools, dumbbell):
    """Simulated sensors at the limits of every bound; with the gain shared the bounds are narrower."""
    theta = sample_parameters(robot, np.random.default_rng(4), corner=True)
    motion = tools.FourierMotion(robot, 5)
    widths = {}
    for label, changes in {
        "anywhere": {"effort_relative_error": 0.03},
        "shared": {
            "effort_relative_error": 0.03,
            "effort_gain_error": 0.025,
            "effort_mean_error": 0.005,
            "effort_integral_error": 0.001,
            "velocity_mean_error": 5e-4,
            "velocity_integral_error": 1e-4,
            "effort_drift": 1e-4,
        },
    }.items():
        of = tools.with_sensors(robot, **changes)
        exact = tools.record(of, theta, dumbbell, motion, 3.0)
        sensors = SensorSimulation(of.sensors, Noise.GAIN, 7)
        rows = [
            sensors.measure(10**9 + int(stamp), *row)
            for stamp, *row in zip(exact.stamps, exact.q, exact.v, exact.tau, strict=True)
        ]
        columns = [np.array(column) for column in zip(*rows, strict=True)]
        block = dataclasses.replace(exact, stamps=columns[0], q=columns[1], v=columns[2], tau=columns[3])
        estimator = StreamingEstimator(of)
        assert not estimator.add(block)
        estimate = estimator.estimate()
        assert estimate.contains(dumbbell)
        widths[label] = estimate.radius
        assert (estimate.error_budget["torque_gain"][0] > 0.0) == (label == "shared")
    assert widths["shared"][0] < 0.98 * widths["anywhere"][0]


@pytest.mark.parametrize(
    ("name", "value"), [("effort_gain_error", 0.04), ("effort_mean_error", 0.6), ("velocity_mean_error", 0.01)]
)
def test_parts_of_an_error_are_no_larger_than_the_whole(robot, name, value):
    values = read_yaml(textbook_file())
    values.pop("urdf"), values.pop("protocol")
    values["sensors"][name] = value
    with pytest.raises(ParameterOutOfRange, match=f"{name}.*at most the whole error of each joint"):
        load_robot_from_urdf(robot.urdf, joint_names=robot.joint_names, settings=values)


FRICTION = {
    "stribeck_friction": lambda v, tau, q: np.exp(-np.abs(v) / 0.1) * np.sign(v) * [[0.55] * 4 + [0.165] * 3],
    "friction_asymmetry": lambda v, tau, q: np.abs(v) * [[1.1] * 4 + [0.33] * 3],
    "load_friction": lambda v, tau, q: np.abs(tau) * np.sign(v) / 1.1,
    "friction_ripple": lambda v, tau, q: np.sin(200.0 * q) * [[0.55] * 4 + [0.165] * 3],
}
"""Torques of the largest friction beyond the simple law with a setting of 1, or of 0.1 for the load [Nm]."""


@pytest.mark.parametrize("name", FRICTION)
def test_friction_beyond_the_simple_law_stays_within_its_budget(world, tools, dumbbell, name):
    robot, theta, motion = world
    block, share = tools.record(robot, theta, dumbbell, motion, 1.0), 0.1 if name == "load_friction" else 1.0
    extra = share * FRICTION[name](block.v, block.tau, block.q)
    settings = EstimatorSettings(**{name: share})
    rough = dataclasses.replace(block, tau=block.tau + extra)
    off, terms = residual(robot, rough, theta, dumbbell, settings=settings)
    others = sum(value for term, value in terms.items() if term != "friction")
    assert np.all(np.abs(off) <= others + terms["friction"])
    assert np.any(np.abs(off) > others), "the simple law does not suffice"
    assert np.max(np.abs(off) / (others + terms["friction"])) > 0.4, "the bound is not vacuous"
    assert not residual(robot, block, theta, dumbbell)[1]["friction"].any()


def test_a_sensor_behind_the_rotor_sees_friction_and_no_armature(world, tools, dumbbell):
    robot, theta, motion = world
    geared = tools.with_sensors(robot, effort_meaning=EffortMeaning.GEAR_SIDE)
    block = tools.record(geared, theta, dumbbell, motion, 1.0)
    truth = theta.copy()
    truth[-4 * robot.n + 2 :: 4] = 0.0
    off, terms = residual(geared, block, truth, dumbbell)
    assert np.all(np.abs(off) <= sum(terms.values()))
    off, terms = residual(robot, block, theta, dumbbell)
    assert np.any(np.abs(off) > 2.0 * sum(terms.values())), "the rotors make a difference"


def test_a_sensor_on_the_link_side_sees_no_friction_of_any_kind(world, tools, dumbbell):
    robot, theta, motion = world
    linked = tools.with_sensors(robot, effort_meaning=EffortMeaning.LINK_SIDE)
    block = tools.record(linked, theta, dumbbell, motion, 0.5)
    settings = EstimatorSettings(**dict.fromkeys(FRICTION, 0.5))
    truth = theta.copy()
    truth.reshape(-1)[70:].reshape(7, 4)[:, :3] = 0.0
    assert not residual(linked, block, truth, dumbbell, settings=settings)[1]["friction"].any()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"error_window": 0.5}, "error_window.*how far errors integrate"),
        ({"velocity_mean_error": 1e-3}, "missing.*velocity_integral_error.*both"),
        ({"velocity_integral_error": 1e-3}, "missing.*velocity_mean_error.*both"),
    ],
)
def test_a_lasting_error_and_its_integral_come_together(robot, change, reason):
    import yaml

    from sysid_ros.core.model.robot_files import config_directories

    values = yaml.safe_load((config_directories()[0] / "kinova_gen3_2f85.yaml").read_text())
    values.pop("urdf"), values.pop("protocol")
    values["sensors"] |= change
    with pytest.raises(ParameterOutOfRange, match=reason):
        load_robot_from_urdf(robot.urdf, joint_names=robot.joint_names, settings=values)
