"""Maps between all and base parameters, and the words for them."""

from __future__ import annotations

import mechanisms
import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import Class, analyze_structure
from sysid_ros.core.identifiability.tree_readers import tree_from_model
from sysid_ros.core.identifiability.wording import (
    Symbol,
    describe_combination,
    describe_motion,
    explain,
    summarize,
    symbol_table,
)
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import parameter_names


@pytest.fixture(scope="module")
def arm():
    robot = load_robot("kuka_lbr_med7")
    return robot, analyze_structure(tree_from_model(robot.pin_model))


def torques(model, parameters, rng):
    data = model.createData()
    states = rng.uniform(-1, 1, (20, 3, model.nv))
    return np.array([pin.computeJointTorqueRegressor(model, data, *state) @ parameters for state in states])


def test_parameters_with_the_same_base_parameters_give_the_same_torques(arm):
    robot, structure = arm
    true = robot.theta_nominal[:70]
    base = structure.matrix @ true
    wanted = torques(robot.pin_model, true, np.random.default_rng(0))
    unseen = np.linalg.svd(structure.matrix)[2][structure.count :]
    other = true + np.random.default_rng(1).normal(size=len(unseen)) @ unseen
    assert np.abs(other - true).max() > 0.1
    assert np.allclose(structure.matrix @ other, base, atol=1e-9)
    assert np.allclose(torques(robot.pin_model, other, np.random.default_rng(0)), wanted, atol=1e-9)
    spoilt = true + 1e-3 * structure.matrix.sum(axis=0)
    assert not np.allclose(torques(robot.pin_model, spoilt, np.random.default_rng(0)), wanted, atol=1e-6)


def test_names_are_those_of_theta(arm):
    robot, structure = arm
    assert structure.names == parameter_names(robot)[:70]
    with_friction = analyze_structure(structure.tree, AnalysisSettings(joint_parameters=("F_c", "F_v", "I_a", "beta")))
    columns = with_friction.columns(parameter_names(robot))
    assert sorted(columns) == list(range(98))
    # Armature of the first two joints, whose axes are perpendicular, is inertia about them; all else is seen alone.
    assert with_friction.count == 43 + 28 - 2
    with pytest.raises(ParameterOutOfRange, match=r"joint_1\.F_c|F_c"):
        with_friction.columns(structure.names)


def test_words(arm):
    robot, structure = arm
    first, last = robot.joint_names[0], robot.joint_names[-1]
    index = structure.names.index
    assert explain(structure, index(f"{first}.m")) == (
        f"{first}.m cannot be known: the body only turns about z and the origin of its frame is only accelerated "
        "along z (gravity included), so m never shows up in kinetic energy or weight that a measured force feels."
    )
    assert explain(structure, index(f"{last}.Ixy")) == f"{last}.Ixy can be known on its own."
    text = explain(structure, index(f"{last}.Ixx"))
    assert text == f"{last}.Ixx is only seen together with others, as {last}.Ixx − {last}.Iyy."
    text = explain(structure, index(f"{last}.Iyy"))
    assert text.startswith(f"{last}.Iyy is only seen together with others: it counts ")
    assert f"−1 in the base parameter {last}.Ixx" in text
    assert "43 base parameters out of 70 unknown ones" in summarize(structure)
    assert "−" in describe_combination(structure, structure.base_names.index(f"{last}.Ixx"))


def test_combinations_say_what_the_matrix_says(arm):
    _, structure = arm
    for base in range(structure.count):
        text = describe_combination(structure, base)
        assert text.count("lbr_A") == np.count_nonzero(structure.matrix[base])
        assert describe_combination(structure, base, most=3).count("lbr_A") <= 4


def test_table_of_symbols(arm):
    _, structure = arm
    table = dict(symbol_table(structure))
    assert len(table) == 10 and all(len(row) == 7 for row in table.values())
    flat = [symbol for row in table.values() for symbol in row]
    assert flat.count(Symbol.IDENTIFIABLE) == sum(c is Class.IDENTIFIABLE for c in structure.classes)
    assert flat.count(Symbol.IDENTIFIABLE) + flat.count(Symbol.CHOSEN) == 43
    assert flat.count(Symbol.UNIDENTIFIABLE) == sum(c is Class.UNIDENTIFIABLE for c in structure.classes)
    assert table["m"][0] is Symbol.UNIDENTIFIABLE and table["Izz"][0] is Symbol.CHOSEN


def test_classes_are_those_of_the_nullspace():
    """A parameter is identifiable if every invisible change leaves it alone, unidentifiable if it is one itself."""
    for seed in range(40):
        pin.seed(seed)
        model = mechanisms.random_tree(np.random.default_rng(seed), mechanisms.ANY, most=7)
        structure = analyze_structure(tree_from_model(model))
        regressor = mechanisms.torque_regressor(model, np.random.default_rng(seed))
        _, values, right = np.linalg.svd(regressor)
        null = right[structure.count :].T
        for k, found in enumerate(structure.classes):
            if found is Class.IDENTIFIABLE:
                assert np.abs(null[k]).max(initial=0.0) < 1e-6
            elif found is Class.UNIDENTIFIABLE:
                assert np.linalg.norm(regressor[:, k]) < 1e-7 * values[0]
            else:
                assert np.abs(null[k]).max(initial=0.0) > 1e-9
                assert np.linalg.norm(regressor[:, k]) > 1e-9 * values[0]


def test_motion_in_words():
    pin.seed(0)
    tree = tree_from_model(load_robot("kinova_gen3").pin_model)
    structure = analyze_structure(tree)
    assert describe_motion(structure, structure.bodies[-1]) == (
        "the body turns about all axes and the origin of its frame is accelerated in all directions (gravity included)"
    )
