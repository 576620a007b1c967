"""The algorithm against the rank of random regressors, for every kind of mechanism and measurement."""

from __future__ import annotations

from dataclasses import replace

import mechanisms
import numpy as np
import pinocchio as pin
import pytest

from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.identifiability.restricted import restricted_rows
from sysid_ros.core.identifiability.rpna import find_nullspaces
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.spans import Spans
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree import Mimic, Rotor, TreeBody, build_tree
from sysid_ros.core.identifiability.tree_readers import tree_from_model
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.regressors.momentum import MomentumRegressor


def seeded(seed):
    pin.seed(seed)
    return np.random.default_rng(seed)


def check(structure, regressor, rank, where):
    """Number of base parameters, and that the base parameters explain every regressor through the map."""
    assert structure.count == rank(regressor), where
    explained = regressor[:, list(structure.chosen)] @ structure.matrix
    assert np.abs(explained - regressor).max() <= 1e-6 * np.abs(regressor).max(), where


@pytest.mark.parametrize("block", [0, *(pytest.param(k, marks=pytest.mark.slow) for k in range(1, 8))])
def test_550_random_trees_agree_with_the_rank_of_torque_regressors(block):
    for seed in range(70 * block, 70 * block + 70):
        rng = seeded(seed)
        kinds = mechanisms.ANY if seed % 2 else mechanisms.SINGLE
        model = mechanisms.random_tree(rng, kinds, is_floating=seed % 5 == 0)
        structure = analyze_structure(tree_from_model(model))
        check(structure, mechanisms.torque_regressor(model, rng), mechanisms.rank, f"seed {seed}")


def test_the_momentum_regressor_has_the_same_rank():
    for seed in range(60):
        rng = seeded(1000 + seed)
        model = mechanisms.random_tree(rng, ("revolute", "revolute", "prismatic", "helical"), most=10)
        structure = analyze_structure(tree_from_model(model))
        states = list(mechanisms.samples(model, rng, 40))
        q, v = (np.array([state[k] for state in states]) for k in (0, 1))
        momentum, rate = MomentumRegressor(model).evaluate(q, v)
        columns = 10 * model.nv
        rows = np.concatenate([part[..., :columns].reshape(-1, columns) for part in (momentum, rate)])
        check(structure, rows, mechanisms.rank, f"seed {1000 + seed}")


def test_floating_trees_without_gravity_have_the_same_base_parameters():
    """RPNA remark 9."""
    for seed in range(10):
        model = mechanisms.random_tree(seeded(2000 + seed), mechanisms.ANY, is_floating=True)
        tree = tree_from_model(model)
        without = analyze_structure(tree.with_gravity(np.zeros(3)))
        assert analyze_structure(tree.with_gravity([0, 0, -9.81])).chosen == without.chosen


def test_static_experiments():
    for seed in range(60):
        rng = seeded(3000 + seed)
        kinds = mechanisms.ANY if seed % 2 else mechanisms.SINGLE
        model = mechanisms.random_tree(rng, kinds, most=8, is_floating=seed % 5 == 0)
        structure = analyze_structure(tree_from_model(model), AnalysisSettings(motion="static"))
        regressor = mechanisms.torque_regressor(model, rng, is_static=True)
        check(structure, regressor, mechanisms.rank, f"seed {3000 + seed}")


def on_base(model):
    """The same mechanism on a body that may be moved, which gives the wrench on the base when it rests."""
    result = pin.Model()
    base = result.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "base")
    result.appendBodyToJoint(base, pin.Inertia.Random(), pin.SE3.Identity())
    for k in range(1, model.njoints):
        joint = result.addJoint(model.parents[k] + 1, model.joints[k], model.jointPlacements[k], model.names[k])
        result.appendBodyToJoint(joint, pin.Inertia.Random(), pin.SE3.Identity())
    result.gravity = model.gravity
    return result


@pytest.mark.parametrize("measured", ["base_wrench", "joints_and_base"])
@pytest.mark.parametrize("is_static", [False, True])
def test_wrench_under_a_fixed_base(measured, is_static):
    for seed in range(25):
        rng = seeded(4000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.ANY if seed % 2 else mechanisms.SINGLE, most=6)
        moved = on_base(model)
        data, parts = moved.createData(), []
        for q, v, a in mechanisms.samples(moved, rng, 90):
            q[:7], v[:6], a[:6] = pin.neutral(moved)[:7], 0.0, 0.0
            v, a = (0.0 * v, 0.0 * a) if is_static else (v, a)
            rows = pin.computeJointTorqueRegressor(moved, data, q, v, a)
            parts.append(rows[:6].copy() if measured == "base_wrench" else rows.copy())
        settings = AnalysisSettings(measured=measured, motion="static" if is_static else "dynamic")
        structure = analyze_structure(tree_from_model(model), settings)
        check(structure, np.concatenate(parts), mechanisms.rank, f"seed {4000 + seed}")
        without_base = analyze_structure(
            tree_from_model(model), AnalysisSettings(measured, settings.motion, base_body=False)
        )
        assert without_base.count == mechanisms.rank(np.concatenate(parts)[:, 10:]), f"seed {4000 + seed}"


@pytest.mark.parametrize("measured", ["base_wrench", "joint_torques"])
def test_floating_base_with_part_of_the_forces(measured):
    """External forces alone tell as much as all (RPNA theorem 3); joint torques alone never tell the base's inertia."""
    for seed in range(25):
        rng = seeded(5000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.SINGLE, most=7, is_floating=True)
        data, parts = model.createData(), []
        for q, v, a in mechanisms.samples(model, rng, 120):
            rows = pin.computeJointTorqueRegressor(model, data, q, v, a)
            parts.append(rows[:6].copy() if measured == "base_wrench" else rows[6:].copy())
        structure = analyze_structure(tree_from_model(model), AnalysisSettings(measured=measured))
        check(structure, np.concatenate(parts), mechanisms.rank, f"seed {5000 + seed}")
        everything = analyze_structure(tree_from_model(model)).count
        assert structure.count == everything - (10 if measured == "joint_torques" else 0)


@pytest.mark.parametrize("kind", ["axial", "symmetric", "full"])
def test_rotors_of_any_axis_and_gear_ratio(kind):
    """A rotor is a body of its own whose joint turns ``gear_ratio`` times as far."""
    basis = {"axial": np.eye(10)[:, [9]], "full": np.eye(10)}
    basis["symmetric"] = np.eye(10)[:, [0, 3, 4, 9]] + np.eye(10)[:, [6]] @ [[0, 0, 1, 0]]
    for seed in range(25):
        rng = seeded(6000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.SINGLE, most=6, is_floating=seed % 5 == 0)
        joints = [k for k in range(1, model.njoints) if model.joints[k].nv == 1]
        rotors, both, rotor_of = {}, model.copy(), {}
        for k in joints:
            if rng.random() < 0.3:
                continue
            ratio = float(rng.choice([1.0, -3.0, 50.0]))
            axis = pin.SE3.Random().rotation if rng.random() < 0.4 else np.eye(3)
            origin = rng.choice([0.0, 0.3], 3)
            placement = model.jointPlacements[k] * pin.SE3(axis, origin)
            both.addJoint(model.parents[k], pin.JointModelRZ(), placement, f"rotor_{k}")
            rotors[model.names[k]] = Rotor(ratio, axis[:, 2], origin, kind)
            rotor_of[k] = ratio
        # A symmetric rotor may be described in any frame that has its axis; a full one only up to a rotation.
        structure = analyze_structure(tree_from_model(model).with_rotors(rotors))
        data, parts = both.createData(), []
        for q, v, a in mechanisms.samples(model, rng, 80):
            spread = np.zeros((both.nv, model.nv))
            full_q = pin.neutral(both)
            for k in range(1, model.njoints):
                old, new = model.joints[k], both.joints[both.getJointId(model.names[k])]
                full_q[new.idx_q : new.idx_q + new.nq] = q[old.idx_q : old.idx_q + old.nq]
                spread[new.idx_v : new.idx_v + new.nv, old.idx_v : old.idx_v + old.nv] = np.eye(old.nv)
                if k in rotor_of:
                    rotor = both.joints[both.getJointId(f"rotor_{k}")]
                    full_q[rotor.idx_q] = rotor_of[k] * q[old.idx_q]
                    spread[rotor.idx_v, old.idx_v] = rotor_of[k]
            rows = spread.T @ pin.computeJointTorqueRegressor(both, data, full_q, spread @ v, spread @ a)
            parts.append(_rotor_columns(model, both, rows, rotor_of, basis[kind]))
        stacked = np.concatenate(parts)
        assert structure.count == mechanisms.rank(stacked / _norms(stacked)), f"seed {6000 + seed}"
        if kind != "full":
            explained = stacked[:, list(structure.chosen)] @ structure.matrix
            assert np.abs(explained - stacked).max() <= 1e-6 * np.abs(stacked).max()


def _rotor_columns(model, both, rows, rotor_of, basis):
    parts = []
    for k in range(1, model.njoints):
        link = both.getJointId(model.names[k]) - 1
        parts.append(rows[:, 10 * link : 10 * link + 10])
        if k in rotor_of:
            rotor = both.getJointId(f"rotor_{k}") - 1
            parts.append(rows[:, 10 * rotor : 10 * rotor + 10] @ basis)
    return np.concatenate(parts, axis=1)


def _norms(matrix):
    norms = np.linalg.norm(matrix, axis=0)
    return np.where(norms > 1e-9 * norms.max(), norms, norms.max())


def test_friction_armature_and_offset():
    """Armature adds to inertia about the first axes; an offset looks like weight on a vertical prismatic joint."""
    names = ("F_c", "F_v", "I_a", "beta")
    merged = 0
    for seed in range(60):
        rng = seeded(7000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.SINGLE, most=7)
        structure = analyze_structure(tree_from_model(model), AnalysisSettings(joint_parameters=names))
        data, parts = model.createData(), []
        for q, v, a in mechanisms.samples(model, rng, 100):
            friction = np.zeros((model.nv, model.nv, 4))
            joints = np.arange(model.nv)
            friction[joints, joints] = np.stack([np.sign(v), v, a, np.ones_like(v)], axis=1)
            rows = pin.computeJointTorqueRegressor(model, data, q, v, a)
            parts.append(np.concatenate([rows, friction.reshape(model.nv, -1)], axis=1))
        labels = [f"{n}.{p}" for n in list(model.names)[1:] for p in _PARAMETERS]
        labels += [f"{n}.{p}" for n in list(model.names)[1:] for p in names]
        regressor = np.concatenate(parts)[:, structure.columns(labels)]
        check(structure, regressor, mechanisms.rank, f"seed {7000 + seed}")
        alone = analyze_structure(tree_from_model(model)).count
        merged += structure.count < alone + 4 * model.nv
    assert merged > 20  # or the test would say nothing about parameters that coincide


_PARAMETERS = ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")


def coupled(model, followers):
    """How all joint velocities follow from the free ones, (nv, free), where joints follow others by (leader, ratio)."""
    matrix = np.eye(model.nv)
    index = {name: model.joints[k].idx_v for k, name in enumerate(model.names)}
    for name, (leader, ratio) in followers.items():
        matrix[index[name], index[name]] = 0.0
        matrix[index[name], index[leader]] = ratio
    return np.delete(matrix, [index[name] for name in followers], axis=1)


@pytest.mark.parametrize("measured", ["generalized_forces", "joint_torques"])
def test_joints_that_follow_others(measured):
    """The torque of the joint that leads carries those of its followers."""
    fewer = 0
    for seed in range(25):
        rng = seeded(10000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.SINGLE, most=7, is_floating=seed % 5 == 0)
        single = [name for k, name in enumerate(model.names) if k and model.joints[k].nv == 1]
        if len(single) < 2:
            continue
        leader, *others = rng.permutation(single)
        followers = {name: (leader, float(rng.choice([1.0, -0.5]))) for name in others[:2]}
        tree = tree_from_model(model)
        bodies = [replace(b, follows=Mimic(*followers[b.name]) if b.name in followers else None) for b in tree.bodies]
        tree, matrix = replace(tree, bodies=tuple(bodies)), coupled(model, followers)
        data, parts = model.createData(), []
        for q, v, a in mechanisms.samples(model, rng, 150):
            for name, (_, ratio) in followers.items():
                lead, own = (model.joints[model.getJointId(one)].idx_q for one in (leader, name))
                q[own] = ratio * q[lead]
            free = [model.joints[model.getJointId(n)].idx_v for n in followers]
            v, a = matrix @ np.delete(v, free), matrix @ np.delete(a, free)
            rows = matrix.T @ pin.computeJointTorqueRegressor(model, data, q, v, a)
            parts.append(rows[6 if measured == "joint_torques" and tree.is_floating else 0 :])
        structure = analyze_structure(tree, AnalysisSettings(measured))
        check(structure, np.concatenate(parts), mechanisms.rank, f"seed {10000 + seed}")
        fewer += structure.count < analyze_structure(tree_from_model(model), AnalysisSettings(measured)).count
    assert fewer > 10


@pytest.mark.parametrize("measured", ["generalized_forces", "joint_torques", "base_wrench", "joints_and_base"])
def test_rows_of_random_states_tell_what_the_recursion_says(measured):
    """Where no motion is restricted, with rotors, armature and offsets, at rest and in motion."""
    for seed in range(12):
        rng = seeded(12000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.ANY, most=5, is_floating=seed % 3 == 0)
        tree = tree_from_model(model)
        single = [body for body in tree.bodies if body.dofs == 1]
        rotors = {body.name: Rotor(rng.choice([-3.0, 50.0]), rng.normal(size=3), rng.normal(size=3)) for body in single}
        motion = "static" if seed % 4 == 0 else "dynamic"
        settings = AnalysisSettings(measured, motion, joint_parameters=("I_a", "beta"))
        structure = analyze_structure(tree.with_rotors(rotors), settings)
        units = [found.unit for found in find_nullspaces(structure.tree, settings, Spans())]
        rows = restricted_rows(structure.tree, units, settings) / np.concatenate([unit.scale for unit in units])
        bodies = structure.tree.bodies
        names = [f"{body.name}.{name}" for body, unit in zip(bodies, units, strict=True) for name in unit.names]
        rows = rows[:, structure.columns(names)]  # bodies between two axes have none
        if not structure.count:  # at rest without gravity
            assert np.abs(rows).max() < 1e-12
            continue
        base = rows[:, list(structure.chosen)]
        assert mechanisms.rank(base / _norms(base)) == structure.count, f"seed {12000 + seed}"
        explained = base @ structure.matrix
        assert np.abs(explained - rows).max() <= 1e-6 * np.abs(rows).max(), f"seed {12000 + seed}"


def test_robots_that_nothing_pushes():
    """RPNA remark 10: motion alone loses one parameter, the total mass; with joint torques nothing is lost."""
    for seed in range(20):
        rng = seeded(11000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.SINGLE, most=6, is_floating=True)
        theta = np.concatenate([inertia.toDynamicParameters() for inertia in list(model.inertias)[1:]])
        data, parts = model.createData(), []
        for q, v, a in mechanisms.samples(model, rng, 150):
            a[:6] = 0.0
            wrench = pin.computeJointTorqueRegressor(model, data, q, v, a)[:6] @ theta
            a[:6] = -np.linalg.solve(pin.crba(model, data, q)[:6, :6], wrench)
            parts.append(pin.computeJointTorqueRegressor(model, data, q, v, a).copy())
        tree = tree_from_model(model)
        structure = analyze_structure(tree, AnalysisSettings("ballistic"))
        check(structure, np.concatenate(parts), mechanisms.rank, f"seed {11000 + seed}")
        assert structure.count == analyze_structure(tree).count
        assert structure.count == mechanisms.rank(np.concatenate([rows[:6] for rows in parts])) + 1
    with pytest.raises(ParameterOutOfRange, match="only of a floating base"):
        analyze_structure(tree_from_model(load_robot("kuka_lbr_med7").pin_model), AnalysisSettings("ballistic"))
    with pytest.raises(ModelError, match="has less information without external forces"):
        analyze_structure(
            build_tree("stone", [TreeBody("stone", -1, np.eye(3), np.zeros(3), np.eye(6))]),
            AnalysisSettings("ballistic"),
        )


def test_known_bodies():
    for seed in range(30):
        rng = seeded(8000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.ANY, most=7)
        known = [name for name in list(model.names)[1:] if rng.random() < 0.5]
        structure = analyze_structure(tree_from_model(model), AnalysisSettings(known=tuple(known)))
        unknown = [k - 1 for k in range(1, model.njoints) if model.names[k] not in known]
        columns = [10 * k + i for k in unknown for i in range(10)]
        if columns:
            check(structure, mechanisms.torque_regressor(model, rng)[:, columns], mechanisms.rank, f"{8000 + seed}")
        else:
            assert structure.count == 0


def test_bodies_without_mass_between_two_axes():
    """A chain of single joints with frames between them is a multi-axis joint."""
    for seed in range(20):
        rng = seeded(9000 + seed)
        model = mechanisms.random_tree(rng, mechanisms.SINGLE, most=8)
        empty = [k for k in range(1, model.njoints - 1) if rng.random() < 0.4]
        for k in empty:
            model.inertias[k] = pin.Inertia.Zero()
        structure = analyze_structure(tree_from_model(model))
        columns = [10 * (k - 1) + i for k in range(1, model.njoints) if k not in empty for i in range(10)]
        check(structure, mechanisms.torque_regressor(model, rng)[:, columns], mechanisms.rank, f"{9000 + seed}")
        if empty:
            everything = analyze_structure(tree_from_model(model, massless="unknown"))
            check(everything, mechanisms.torque_regressor(model, rng), mechanisms.rank, f"{9000 + seed}")


def test_a_wrench_under_the_base_feels_no_armature_friction_or_offset():
    names = ("F_c", "F_v", "I_a", "beta")
    for seed in range(5):
        tree = tree_from_model(mechanisms.random_tree(seeded(seed), mechanisms.SINGLE, most=5))
        plain = analyze_structure(tree, AnalysisSettings("base_wrench"))
        structure = analyze_structure(tree, AnalysisSettings("base_wrench", joint_parameters=names))
        assert structure.base_names == plain.base_names
        for k, name in enumerate(structure.names):
            if name.endswith(names):
                assert not structure.matrix[:, k].any()
        # Joint torques feel them, with or without that wrench.
        both = analyze_structure(tree, AnalysisSettings("joints_and_base", joint_parameters=names))
        assert set(both.base_names) >= {name for name in both.names if name.endswith("F_v")}


def moved(tree, changes):
    bodies = [replace(b, translation=b.translation + d) for b, d in zip(tree.bodies, changes, strict=True)]
    return replace(tree, bodies=tuple(bodies))


@pytest.mark.parametrize(("body", "axis", "count"), [(1, 0, 43), (1, 1, 41), (2, 0, 41)])
def test_an_offset_counts_whatever_its_size(body, axis, count):
    """Between intersecting axes without gravity: 39 base parameters, more with any offset above rounding errors."""
    tree = tree_from_model(load_robot("kuka_lbr_med7").pin_model).with_gravity(np.zeros(3))
    for size in (0.1, 1e-3, 1e-5, 1e-6, 1e-9, 0.0):
        changes = np.zeros((7, 3))
        changes[body, axis] = size
        assert analyze_structure(moved(tree, changes)).count == (count if size > 1e-7 else 39), size


def test_rounding_errors_of_the_machine_change_nothing():
    for seed in range(40):
        rng = seeded(seed)
        tree = tree_from_model(mechanisms.random_tree(rng, mechanisms.ANY, most=8))
        noise = 1e-12 * rng.normal(size=(len(tree.bodies), 3))
        assert analyze_structure(moved(tree, noise)).base_names == analyze_structure(tree).base_names, f"seed {seed}"


def test_known_bodies_behind_an_axis_that_is_almost_perpendicular_to_x():
    """The first parameter of the first body, Ixx, then counts 1e4 times less than the others, and is still the one."""
    for seed in range(20):
        rng = seeded(9500 + seed)
        model = pin.Model()
        for k in range(8):
            axis = np.array([-0.008, 0.724, -0.689]) if k == 0 else rng.normal(size=3)
            kind = pin.JointModelPrismaticUnaligned if k in (2, 4) else pin.JointModelRevoluteUnaligned
            offset = pin.SE3(pin.SE3.Random().rotation, rng.normal(size=3))
            model.addJoint(k, kind(axis / np.linalg.norm(axis)), offset, f"joint_{k + 1}")
            model.appendBodyToJoint(k + 1, pin.Inertia.Random(), pin.SE3.Identity())
        model.gravity.linear = np.zeros(3)
        structure = analyze_structure(tree_from_model(model), AnalysisSettings(known=("joint_2", "joint_7")))
        columns = [10 * k + i for k in range(8) if k not in (1, 6) for i in range(10)]
        regressor = mechanisms.torque_regressor(model, rng)[:, columns]
        check(structure, regressor, mechanisms.rank, f"seed {9500 + seed}")
        assert structure.count_of_body(0) == 1 and structure.base_names[0] == "joint_1.Ixx"
