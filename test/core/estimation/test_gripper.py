"""The state of the gripper: what is known of the last body where it is stated, and for all states where it is not."""

import numpy as np
import pytest
from textbook import load_steady, load_textbook, textbook_file

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.common.yaml_files import read_yaml
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import estimate_from_samples
from sysid_ros.core.model.loader import load_robot_from_urdf
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.drivers.modes import TRUTHS
from sysid_ros.drivers.mujoco.simulation import draw_truth
from sysid_ros.reports.payload import tool_parameters


@pytest.fixture(scope="module")
def gripper():
    return load_steady("kinova_gen3_2f85")


def test_every_state_is_part_of_what_holds_for_all_and_narrower(gripper):
    last = gripper.inertial_slice(gripper.n)
    anything, radius = gripper.theta_box.select(last), {}
    assert list(gripper.gripper_states) == ["open", "closed"]
    for name in ("", "open", "closed"):
        state = gripper.gripper_state(name)
        assert state.box.contains(state.nominal)
        assert np.all(state.box.lower >= anything.lower) and np.all(state.box.upper <= anything.upper)
        unknowns = describe_unknowns(gripper, EstimatorSettings(gripper=name))
        np.testing.assert_allclose(unknowns.center[last], state.box.center, atol=1e-15)
        radius[name] = unknowns.radius[last]
    assert radius["closed"][3] < 0.7 * radius[""][3] and radius["open"][9] < 0.2 * radius[""][9]
    closed = gripper.with_gripper("closed")
    np.testing.assert_array_equal(closed.theta_nominal[last], gripper.gripper_state("closed").nominal)
    np.testing.assert_array_equal(closed.theta_box.lower[: last.start], gripper.theta_box.lower[: last.start])
    moved = tool_parameters(closed) - tool_parameters(gripper)
    np.testing.assert_allclose(moved, closed.theta_nominal[last] - gripper.theta_nominal[last], atol=1e-12)


def test_the_simulated_arm_is_in_the_state_it_is_given(gripper):
    last = gripper.inertial_slice(gripper.n)
    for truth in TRUTHS:
        for seed in range(3):
            assert gripper.gripper_state("closed").box.contains(draw_truth(gripper, truth, seed, "closed")[last])
    with pytest.raises(ParameterOutOfRange, match="gripper 'shut'"):
        draw_truth(gripper, "random", 0, "shut")


def test_unknown_states_are_refused_by_name(gripper):
    with pytest.raises(ParameterOutOfRange, match="gripper 'shut': expected one of open, closed"):
        describe_unknowns(gripper, EstimatorSettings(gripper="shut"))
    with pytest.raises(ParameterOutOfRange, match="has no gripper whose states are known"):
        load_textbook("kinova_gen3").gripper_state("open")


@pytest.mark.parametrize(
    ("states", "reason"),
    [
        ({"wide": {"change": [0.0] * 3 + [0.02] + [0.0] * 6}}, "gripper.wide.*mcz.*enlarge gripper.any_state"),
        ({"wide": {"radius": [0.2] + [0.0] * 9}}, "gripper.wide.*m from"),
        ({"wide": {"shift": 1.0}}, "gripper.wide.shift.*no setting of that name"),
        ({"wide": {"change": [0.0] * 9}}, "gripper.wide.change"),
    ],
)  # fmt: skip
def test_states_that_the_box_for_all_states_does_not_hold_are_refused(gripper, states, reason):
    settings = {**read_yaml(textbook_file()), "gripper": states}
    with pytest.raises(ParameterOutOfRange, match=reason):
        load_robot_from_urdf(gripper.urdf, settings=settings)


@pytest.mark.parametrize("relative", [0.0, 0.2])
def test_states_stay_within_the_box_for_all_states_whatever_its_relative_part(gripper, relative):
    settings = dict(read_yaml(textbook_file()))
    settings["inertial_uncertainty"] = {**settings["inertial_uncertainty"], "relative": relative}
    robot = load_robot_from_urdf(gripper.urdf, settings=settings)
    whole = robot.gripper_state("").box
    for name in ("open", "closed"):
        state = robot.gripper_state(name)
        assert state.box.is_subset_of(whole) and state.box.contains(state.nominal)


def test_the_truth_is_inside_where_the_state_is_stated_and_bounds_are_narrower(gripper, tools, dumbbell):
    rng, last = np.random.default_rng(2), gripper.inertial_slice(gripper.n)
    theta = sample_parameters(gripper, rng, corner=True)
    theta[last] = 1.04 * gripper.gripper_state("closed").nominal
    block = tools.record(gripper, theta, dumbbell, tools.FourierMotion(gripper, 3), 1.0)
    block = tools.measure(gripper, block.q, block.v, block.tau, rng)
    found = {
        name: estimate_from_samples(gripper, [block], EstimatorSettings(gripper=name, bound_tolerance=1e-3))[0]
        for name in ("", "closed")
    }
    assert all(one.is_consistent and one.contains(dumbbell) for one in found.values())
    stated, unknown = found["closed"].radius, found[""].radius
    assert np.all(stated <= 1.01 * unknown) and stated[3] < 0.99 * unknown[3]
