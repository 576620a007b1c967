"""What data know: against Monte Carlo, ranks, and the motions the advice is about."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from textbook import load_textbook

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.advice import Swing, advise
from sysid_ros.core.identifiability.data import (
    ArmInformation,
    analyze_data,
    felt_joint_parameters,
    gram,
    prior_scale,
)
from sysid_ros.core.identifiability.report import describe_data, describe_direction
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree_readers import tree_from_model
from sysid_ros.core.model.robot import parameter_names
from sysid_ros.core.regressors.torque import TorqueRegressor


class Arm:
    """An arm with its structural answer for all parameters, friction included."""

    def __init__(self):
        self.robot = load_textbook("kinova_gen3")
        names = felt_joint_parameters(self.robot)
        self.structure = analyze_structure(
            tree_from_model(self.robot.pin_model), AnalysisSettings(joint_parameters=names)
        )
        self.source = ArmInformation(self.robot, self.structure)
        radius = 0.2 * np.abs(self.robot.theta_nominal) + 0.01
        self.scale = prior_scale(self.structure, parameter_names(self.robot), radius)

    def swing(self, moving, seed=0, posture=None):
        rng = np.random.default_rng(seed)
        amplitude, n = np.zeros(self.robot.n), self.robot.n
        amplitude[list(moving)] = 0.6
        middle = rng.uniform(-0.8, 0.8, n) if posture is None else posture
        return Swing(middle, amplitude, rng.uniform(1.0, 3.0, n), rng.uniform(0, 6, n))

    def information(self, motions):
        return sum(self.source.of_motion(*m.states(60), m.duration) for m in motions)


@pytest.fixture(scope="module")
def arm():
    return Arm()


@pytest.fixture(scope="module")
def rich(arm):
    return arm.information([arm.swing(range(7), seed) for seed in range(8)])


def test_rich_data_determine_what_can_be_known_and_no_more(arm, rich):
    analysis = analyze_data(arm.structure, rich, arm.scale)
    values = np.linalg.eigvalsh(rich * np.outer(arm.scale, arm.scale))
    assert np.count_nonzero(values > 1e-10 * values[-1]) == arm.structure.count
    assert np.all(analysis.singular_values > 0.0)
    assert analysis.condition_number == pytest.approx(analysis.singular_values[0] / analysis.singular_values[-1])


def test_deviations_are_those_of_least_squares(arm, rich):
    """Noise on the rows, least squares on the columns of the base parameters, many times."""
    rng = np.random.default_rng(0)
    rows = []
    for seed in range(8):
        w = TorqueRegressor(arm.robot).evaluate(*arm.swing(range(7), seed).states(60))
        rows.append(w[..., arm.source.columns].reshape(-1, len(arm.source.columns)))
    regressor = np.concatenate(rows)
    information = gram(regressor, np.full(len(regressor), 0.5))
    analysis = analyze_data(arm.structure, information, arm.scale)
    solve = np.linalg.pinv(regressor[:, list(arm.structure.chosen)])
    found = np.std([solve @ rng.normal(scale=0.5, size=len(regressor)) for _ in range(800)], axis=0)
    assert np.allclose(found, analysis.deviations, rtol=0.15)
    assert np.all(analysis.deviations_with_prior <= np.minimum(analysis.deviations, analysis.prior_deviations) + 1e-12)


def test_singular_values_do_not_depend_on_units(arm, rich):
    factor = np.exp(np.random.default_rng(1).normal(size=arm.scale.size))
    chosen = list(arm.structure.chosen)
    scaled = dataclasses.replace(arm.structure, matrix=factor[chosen][:, None] * arm.structure.matrix / factor)
    first = analyze_data(arm.structure, rich, arm.scale)
    second = analyze_data(scaled, rich / np.outer(factor, factor), arm.scale * factor)
    assert np.allclose(first.singular_values, second.singular_values, rtol=1e-5)


def test_data_at_rest_know_what_the_static_analysis_says(arm):
    tree = tree_from_model(arm.robot.pin_model)
    structure = analyze_structure(tree)
    source = ArmInformation(arm.robot, structure)
    q = np.random.default_rng(2).uniform(-2, 2, (200, 7))
    information = source.of_motion(q, 0 * q, 0 * q, 20.0)
    scale = np.full(70, 1e4)  # so little is known before that any information counts
    analysis = analyze_data(structure, information, scale)
    static = analyze_structure(tree, AnalysisSettings(motion="static"))
    values = analysis.singular_values
    assert np.count_nonzero(values > 1e-6 * values[0]) == static.count


def test_what_was_not_moved_is_not_determined(arm):
    information = arm.information([arm.swing((0, 1, 2), seed, posture=np.zeros(7)) for seed in range(3)])
    analysis = analyze_data(arm.structure, information, arm.scale)
    assert analysis.determined < arm.structure.count
    friction = [k for k, name in enumerate(arm.structure.base_names) if name.endswith(("F_c", "F_v"))]
    for k in friction:
        moved = any(f"joint_{j}." in arm.structure.base_names[k] for j in (1, 2, 3))
        assert np.isfinite(analysis.deviations[k]) == moved
    text = describe_data(analysis)
    missing = arm.structure.count - analysis.determined
    assert text.startswith(
        f"{missing} of {arm.structure.count} combinations that can be known have not been excited enough"
    )
    # the weakest direction really changes no torque of these motions
    change = np.linalg.pinv(arm.structure.matrix) @ analysis.weakest(1)[0]
    w = TorqueRegressor(arm.robot).evaluate(*arm.swing((0, 1, 2), 0, posture=np.zeros(7)).states())
    theta = np.zeros(98)
    theta[arm.source.columns] = change
    assert np.abs(w @ theta).max() < 1e-6
    assert describe_direction(analysis, 0)


def test_recordings_and_planned_motions_agree(arm):
    motion = dataclasses.replace(arm.swing(range(7), 3), duration=4.0)
    times = np.arange(4001) * 1e-3
    angle = motion.rate * times[:, None] + motion.phase
    q = motion.posture + motion.amplitude * np.sin(angle)
    v = motion.amplitude * motion.rate * np.cos(angle)
    recorded = arm.source.of_recording(times, q, v)
    planned = arm.source.of_motion(*motion.states(200), motion.duration)
    assert np.allclose(recorded, planned, rtol=0.02, atol=0.02 * np.abs(planned).max())
    broken = np.where(np.arange(4001) < 2000, times, times + 1.0)
    whole = arm.source.of_recording(times[:2000], q[:2000], v[:2000])
    whole = whole + arm.source.of_recording(times[2000:], q[2000:], v[2000:])
    assert np.allclose(arm.source.of_recording(broken, q, v), whole)  # no window over a gap
    assert not arm.source.of_recording(times[:50], q[:50], v[:50]).any()


def test_advice_is_evaluated_and_helps(arm):
    information = arm.information([arm.swing((0, 1, 2, 3), seed) for seed in range(3)])
    analysis = analyze_data(arm.structure, information, arm.scale)
    found = advise(arm.robot, analysis, arm.source, information, recorded_speeds=np.zeros(7))
    assert set(found.moving) & {"joint_5", "joint_6", "joint_7"}
    motion = found.motion
    limits = arm.robot.limits
    q, v, a = motion.states(500)
    assert np.all((q >= limits.q_lower) & (q <= limits.q_upper))
    assert np.all(np.abs(v) <= limits.v_max) and np.all(np.abs(a) <= limits.a_max)
    assert [arm.robot.joint_names[j] for j in np.flatnonzero(motion.amplitude)] == list(found.moving)
    after = analyze_data(
        arm.structure, information + arm.source.of_motion(*motion.states(), motion.duration), arm.scale
    )
    assert after.determined == found.determined > analysis.determined
    assert after.singular_values[-1] == pytest.approx(found.after, rel=1e-3, abs=1e-6)
    assert ", ".join(found.moving[:1]) in found.text and "faster than so far" in found.text
    other = advise(arm.robot, analysis, arm.source, information, seed=1)
    assert other.text != found.text  # from evaluation, not from a list of phrases
    assert found.text.split("moving ")[1].split(" at ")[0] in describe_data(analysis, found)


def test_advice_leaves_out_what_is_not_needed(arm):
    """Only the last joint has not moved: nothing else has to, and few postures matter."""
    information = arm.information([arm.swing(range(6), seed) for seed in range(4)])
    analysis = analyze_data(arm.structure, information, arm.scale)
    found = advise(arm.robot, analysis, arm.source, information)
    assert found.moving == ("joint_7",)
    assert len(found.postures) < 6
    still = np.flatnonzero(found.motion.amplitude == 0.0)
    at_home = np.isclose(found.motion.posture[still], arm.robot.home[still])
    assert np.count_nonzero(at_home) == 6 - len(found.postures)


def test_no_advice_where_nothing_is_missing(arm, rich):
    scale = arm.scale * 1e3
    analysis = analyze_data(arm.structure, rich, scale)
    assert analysis.determined == arm.structure.count
    assert advise(arm.robot, analysis, arm.source, rich) is None
    assert describe_data(analysis).startswith("The data determine all")


def test_payload_with_a_known_arm(arm):
    robot = arm.robot
    structure = analyze_structure(tree_from_model(robot.pin_model), AnalysisSettings(known=robot.joint_names[:-1]))
    assert structure.count == 10 and structure.names[0] == f"{robot.joint_names[-1]}.m"
    source = ArmInformation(robot, structure)
    information = source.of_motion(*arm.swing(range(7)).states(60), 5.0)
    box = robot.payload_prior.box
    analysis = analyze_data(structure, information, box.radius, box)
    assert np.allclose(analysis.lower, box.lower) and np.allclose(analysis.upper, box.upper)
    exact = dataclasses.replace(robot, theta_box=Box(robot.theta_nominal, robot.theta_nominal))
    sharper = ArmInformation(exact, structure).of_motion(*arm.swing(range(7)).states(60), 5.0)
    assert np.all(np.diag(sharper) > np.diag(information))  # what is unknown of the arm costs information


def test_guaranteed_bounds_contain_the_base_parameters_of_every_point(arm, rich):
    rng = np.random.default_rng(3)
    theta = arm.robot.theta_nominal[arm.source.columns]
    box = Box.around(theta, arm.scale)
    analysis = analyze_data(arm.structure, rich, arm.scale, box)
    for corner in itertools.chain([box.lower, box.upper], rng.uniform(box.lower, box.upper, (50, theta.size))):
        base = arm.structure.matrix @ corner
        assert np.all((analysis.lower <= base) & (base <= analysis.upper))
    row = arm.structure.matrix[0]
    worst = np.where(row > 0, box.upper, box.lower)
    assert analysis.upper[0] == pytest.approx(row @ worst)


def test_bad_input_is_refused(arm, rich):
    with pytest.raises(ParameterOutOfRange, match="information"):
        analyze_data(arm.structure, rich[:5, :5], arm.scale)
    with pytest.raises(ParameterOutOfRange, match="scale"):
        analyze_data(arm.structure, rich, 0.0 * arm.scale)
    other = np.array(rich)
    other[0, 0] += rich.max()  # the mass of the first body cannot show up
    with pytest.raises(ParameterOutOfRange, match="same mechanism"):
        analyze_data(arm.structure, other, arm.scale)
    with pytest.raises(ParameterOutOfRange, match="standard deviation"):
        gram(np.ones((3, 2)), np.zeros(3))
    with pytest.raises(ParameterOutOfRange, match="window"):
        ArmInformation(arm.robot, arm.structure, window=0.0)


def test_parameters_a_link_side_sensor_does_not_feel_are_refused():
    robot = load_textbook("kuka_lbr_med7")
    assert felt_joint_parameters(robot) == ()
    structure = analyze_structure(tree_from_model(robot.pin_model), AnalysisSettings(joint_parameters=("I_a",)))
    q = np.random.default_rng(0).uniform(-1, 1, (40, 7))
    information = ArmInformation(robot, structure).of_motion(q, q, q, 1.0)
    with pytest.raises(ParameterOutOfRange, match="same mechanism"):
        analyze_data(structure, information, np.ones(77))


def test_nothing_identifiable_is_no_error(arm):
    tree = tree_from_model(arm.robot.pin_model).with_gravity(np.zeros(3))
    structure = analyze_structure(tree, AnalysisSettings(motion="static"))
    analysis = analyze_data(structure, np.zeros((70, 70)), np.ones(70))
    assert structure.count == analysis.determined == 0 and analysis.condition_number == 1.0
    assert describe_data(analysis).startswith("Data cannot determine any unknown parameter")
    assert advise(arm.robot, analysis, arm.source, np.zeros((70, 70))) is None
