"""Answers of the paper (tables 2, 4, 5), of its Matlab code, and of the arms of this package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.identifiability.mechanism import compare_with_exact
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import Class, analyze_structure
from sysid_ros.core.identifiability.tree import Rotor, TreeBody, build_tree, prismatic, revolute
from sysid_ros.core.identifiability.tree_readers import tree_from_urdf

URDF = Path(__file__).parents[3] / "urdf"
DOWN = (0.0, 0.0, -9.81)
Q = np.pi / 2
# Modified DH rows (alpha, a, d), kind, axis; gravity; gear ratios. Facts of the mechanisms in the paper.
MODELS = {
    "puma": (
        [(0, 0, 0), (-Q, 0, 0), (0, 0.2, 0.4), (-Q, 0.153, 0.839), (Q, 0, 0), (-Q, 0, 0)],
        "RRRRRR",
        DOWN,
        [5.0] * 6,
    ),
    "scara": ([(0, 0, 0), (0, 0.1, 0), (0, 0.2, 0), (0, 0, 0)], "RRPR", DOWN, [5.0] * 4),
    "cheetah": ([(0, 0, 0), (Q, 0, 0.044), (0, 0.342, 0)], "RRR", (9.81, 0, 0), [10.0] * 3),
}


def mechanism(name, rotors=None, floating=False, gravity=None):
    rows, kinds, own_gravity, ratios = MODELS[name]
    bodies = []
    for k, ((alpha, a, d), kind) in enumerate(zip(rows, kinds, strict=True)):
        rotation = pin.rpy.rpyToMatrix(alpha, 0.0, 0.0).round(12)
        motion = revolute([0, 0, 1]) if kind == "R" else prismatic([0, 0, 1])
        rotor = Rotor(ratios[k], (0, 0, 1), parameters=rotors) if rotors else None
        bodies.append(TreeBody(f"j{k + 1}", k - 1, rotation, rotation @ [a, 0, d], motion, rotor=rotor))
    tree = build_tree(name, bodies, own_gravity if gravity is None else gravity)
    if not floating:
        return tree
    base = TreeBody("base", -1, np.eye(3), np.zeros(3), np.eye(6))
    return replace(tree, bodies=(base, *(replace(body, parent=body.parent + 1) for body in tree.bodies)))


def dimensions(structure, first=0):
    bodies = structure.bodies[first:]
    return [[getattr(body, f"{kind}_dimension") for body in bodies] for kind in ("velocity", "coefficient", "transfer")]


@pytest.mark.parametrize(
    ("name", "count", "with_rotors", "dim_v", "dim_k", "dim_t"),
    [
        ("puma", 36, 40, [2, 5, 6, 6, 6, 6], [1, 8, 10, 10, 10, 10], [9, 3, 3, 3, 3, 3]),
        ("scara", 8, 11, [2, 4, 4, 4], [1, 4, 4, 4], [9, 7, 9, 7]),
        ("cheetah", 17, 18, [3, 6, 6], [3, 9, 10], [7, 3, 3]),
    ],
)
def test_tables_of_the_paper_fixed_base(name, count, with_rotors, dim_v, dim_k, dim_t):
    structure = analyze_structure(mechanism(name))
    assert structure.count == count
    assert dimensions(structure) == [dim_v, dim_k, dim_t]
    for rotors in ("axial", "symmetric"):
        assert analyze_structure(mechanism(name, rotors)).count == with_rotors


@pytest.mark.parametrize(
    ("name", "dim_v", "dim_k"),
    [
        ("puma", [1, 3, 6, 6, 6, 6], [1, 6, 10, 10, 10, 10]),
        ("scara", [1, 3, 4, 4], [1, 4, 4, 4]),
        ("cheetah", [1, 3, 6], [1, 6, 10]),
    ],
)
def test_tables_of_the_paper_without_gravity(name, dim_v, dim_k):
    structure = analyze_structure(mechanism(name, gravity=np.zeros(3)))
    assert dimensions(structure)[:2] == [dim_v, dim_k]


def test_cheetah_leg_on_a_floating_torso():
    for rotors, count in ((None, 21), ("axial", 24), ("symmetric", 24)):
        structure = analyze_structure(mechanism("cheetah", rotors, floating=True))
        assert structure.count - structure.count_of_body(0) == count
        assert structure.count_of_body(0) == 10
    leg = analyze_structure(mechanism("cheetah", floating=True))
    assert dimensions(leg, 1) == [[6, 6, 6], [10, 10, 10], [3, 3, 3]]


def names_of(structure, wanted):
    result = [[] for _ in structure.bodies]
    for k, name in enumerate(structure.names):
        if wanted(k):
            result[structure.body_of[k]].append(name.split(".")[1])
    return [sorted(names) for names in result]


def test_classes_of_every_parameter_of_the_puma():
    """The symbols of table 2, as the paper's Matlab code prints them."""
    structure = analyze_structure(mechanism("puma"))
    alone = [
        [],
        ["mcy", "Iyz", "Ixy"],
        ["Iyz", "Ixz"],
        ["mcx", "Iyz", "Ixz", "Ixy"],
        ["mcx", "Iyz", "Ixz", "Ixy"],
        ["mcx", "mcy", "Izz", "Iyz", "Ixz", "Ixy"],
    ]
    seven = ["mcx", "mcy", "Ixx", "Izz", "Iyz", "Ixz", "Ixy"]
    unidentifiable = [["m", "mcx", "mcy", "mcz", "Ixx", "Iyy", "Iyz", "Ixz", "Ixy"], ["m", "mcz"], [], [], [], []]
    classes = structure.classes
    assert names_of(structure, lambda k: classes[k] is Class.IDENTIFIABLE) == [sorted(x) for x in alone]
    assert names_of(structure, lambda k: classes[k] is Class.UNIDENTIFIABLE) == [sorted(x) for x in unidentifiable]
    assert names_of(structure, lambda k: k in structure.chosen) == [["Izz"], *[sorted(seven)] * 5]


def test_the_last_motors_of_the_puma_are_felt_and_the_first_two_are_not():
    structure = analyze_structure(mechanism("puma", "axial"))
    base = [name for name in structure.base_names if name.endswith("I_m")]
    assert base == [f"j{k}.I_m" for k in (3, 4, 5, 6)]


def test_a_motor_without_gear_on_the_joint_axis_of_a_free_body_cannot_be_told_from_it():
    """RPNA (63)."""
    tree = mechanism("cheetah", floating=True)
    for ratio, axis, extra in ((1.0, (0, 0, 1), 0), (1.0, (0, 0, -1), 1), (1.0, (0, 1, 0), 1), (2.0, (0, 0, 1), 1)):
        structure = analyze_structure(tree.with_rotors({"j2": Rotor(ratio, axis, (0.1, 0.2, 0.0))}))
        assert structure.count == 31 + extra


def test_two_links_with_parallel_and_with_perpendicular_axes():
    """RPNA section 4.5, worked out by hand there."""
    turned = pin.rpy.rpyToMatrix(Q, 0, 0).round(12)
    for rotation, base in (
        (np.eye(3), ["1.Izz", "2.mcx", "2.mcy", "2.Izz"]),
        (turned, ["1.Izz", "2.mcx", "2.mcy", "2.Ixx", "2.Ixy", "2.Ixz", "2.Iyz", "2.Izz"]),
    ):
        first = TreeBody("1", -1, np.eye(3), np.zeros(3), revolute([0, 0, 1]))
        second = TreeBody("2", 0, rotation, np.array([0.4, 0, 0]), revolute([0, 0, 1]))
        structure = analyze_structure(build_tree("two links", [first, second], np.zeros(3)))
        assert list(structure.base_names) == base
    parallel = analyze_structure(
        build_tree(
            "parallel",
            [first, TreeBody("2", 0, np.eye(3), np.array([0.4, 0, 0]), revolute([0, 0, 1]))],
            np.zeros(3),
        )
    )
    # Izz_1 + m_2 l^2
    assert parallel.matrix[0, parallel.names.index("2.m")] == pytest.approx(0.16)
    assert parallel.matrix[0, parallel.names.index("1.Izz")] == 1.0
    assert np.count_nonzero(parallel.matrix[0]) == 2


@pytest.mark.parametrize("arm", ["kuka_lbr_med7", "kuka_lbr_med14", "kuka_lbr_iiwa7", "kuka_lbr_iiwa14"])
def test_lbr(arm):
    text = (URDF / f"{arm}.urdf").read_text()
    for gravity, count in ((DOWN, 43), ((4.905, 0.0, -8.496), 45), ((0.0, 0.0, 0.0), 39)):
        assert analyze_structure(tree_from_urdf(text, gravity=gravity)).count == count


def gen3(number=repr, **options):
    """The Gen3 with its right angles written in another way."""
    text = (URDF / "kinova_gen3.urdf").read_text()
    for exact in (np.pi, Q):
        text = text.replace(repr(float(exact)), number(float(exact)))
    return tree_from_urdf(text, **options)


def test_gen3():
    for gravity, count in ((DOWN, 43), ((4.905, 0.0, -8.496), 45), ((0.0, 0.0, 0.0), 41)):
        assert analyze_structure(gen3(gravity=gravity)).count == count


@pytest.mark.parametrize("digits", [4, 5, 6])
def test_rounded_angles_are_recognised_with_the_exact_answer_beside(digits):
    tree = gen3(lambda angle: f"{angle:.{digits}f}")
    text_count = analyze_structure(gen3(lambda angle: f"{angle:.{digits}f}", snap_angles=True)).count
    comparison = compare_with_exact(analyze_structure(tree))
    assert comparison.raw.count == 45 and comparison.snapped.count == 43 == text_count
    assert comparison.is_near_dependency
    assert comparison.raw.weakest < 1e-4 < comparison.snapped.weakest
    assert len(comparison.lost_names) == 2
    sentence = comparison.sentence()
    assert "45 base parameters" in sentence and "there are 43" in sentence and comparison.lost_names[0] in sentence


def test_angles_with_two_decimals_are_recognised_too():
    comparison = compare_with_exact(analyze_structure(gen3(lambda angle: f"{angle:.2f}")))
    assert comparison.raw.count > 43 and comparison.snapped.count == 43
    assert comparison.is_near_dependency


def test_angles_beyond_any_precision_count_as_exact():
    structure = analyze_structure(gen3(lambda angle: f"{angle:.8f}"))
    assert structure.count == 43
    assert not compare_with_exact(structure).is_near_dependency


def test_real_tilts_stay():
    comparison = compare_with_exact(analyze_structure(gen3(lambda angle: repr(angle - 0.004))))
    assert comparison.raw.count == comparison.snapped.count == 45
    assert comparison.sentence() == ""


def test_settings_choose_what_is_measured():
    tree = mechanism("scara")
    static = analyze_structure(tree, AnalysisSettings(motion="static"))
    # Only the weight of what slides along gravity is felt.
    assert static.base_names == ("j3.m",)
    assert static.matrix[0, static.names.index("j4.m")] == 1.0
