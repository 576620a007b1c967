"""Minimal parameters: against the rank of random momenta, the identifiability module and the paper's Table 5."""

from __future__ import annotations

import numpy as np
import pinocchio as pin
import pytest
from test_momentum import random_states, random_tree

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree_readers import tree_from_model
from sysid_ros.space.core.minimal_parameters import build_minimal_parameters
from sysid_ros.space.core.momentum import FloatingTree, system_kinematic_matrix


def momenta(model, seed, samples):
    q, v = random_states(model, np.random.default_rng(seed), samples)
    tree = FloatingTree(model)
    return tree, system_kinematic_matrix(tree, q[:, 7:], v[:, 6:], v[:, :6])


@pytest.mark.parametrize(("seed", "bodies"), [(0, 4), (1, 8), (2, 12), (3, 20)])
def test_momentum_of_the_minimal_parameters_is_that_of_all(seed, bodies):
    model = random_tree(seed, bodies)
    tree, matrix = momenta(model, seed, 4)
    minimal = build_minimal_parameters(tree)
    theta = np.random.default_rng(seed).normal(size=10 * tree.count)
    expected = matrix @ theta
    found = minimal.columns(matrix) @ minimal.values(theta)
    assert np.abs(found - expected).max() < 1e-11 * np.abs(expected).max() * bodies


@pytest.mark.parametrize(("seed", "bodies"), [(0, 4), (1, 8), (2, 10)])
def test_they_are_as_many_as_data_can_tell(seed, bodies):
    """No smaller set would do: with enough random motions their columns are independent."""
    model = random_tree(seed, bodies)
    tree, matrix = momenta(model, seed, 40 * bodies)
    minimal = build_minimal_parameters(tree)
    columns = minimal.columns(matrix).reshape(-1, minimal.count)
    columns = columns / np.linalg.norm(columns, axis=0)
    everything = matrix.reshape(-1, matrix.shape[2])
    assert np.linalg.matrix_rank(columns, 1e-8) == minimal.count
    assert np.linalg.matrix_rank(everything, 1e-9 * np.linalg.norm(everything, 2)) == minimal.count


@pytest.mark.parametrize(("seed", "bodies"), [(0, 3), (1, 6), (2, 9)])
def test_span_and_count_are_those_of_the_identifiability_analysis(seed, bodies):
    model = random_tree(seed, bodies)
    model.gravity.linear = np.zeros(3)
    minimal = build_minimal_parameters(FloatingTree(model))
    structure = analyze_structure(tree_from_model(model, massless="unknown"))
    own = {name: k for k, name in enumerate(structure.names)}
    order = [own[f"{body}.{name.split('.')[1]}"] for body, name in _full_names(model)]
    theirs = structure.matrix[:, order]
    assert minimal.count == structure.count
    stacked = np.concatenate([minimal.matrix, theirs])
    assert np.linalg.matrix_rank(stacked, 1e-8) == minimal.count


def _full_names(model):
    names = ("m", "mcx", "mcy", "mcz", "Ixx", "Ixy", "Iyy", "Ixz", "Iyz", "Izz")
    return [(model.names[i], f"x.{name}") for i in range(1, model.njoints) for name in names]


def test_revolute_trees_have_ten_and_seven_per_joint():
    for seed in range(3):
        tree = FloatingTree(random_tree(seed, 6, (pin.JointModelRX, pin.JointModelRY, pin.JointModelRZ)))
        assert build_minimal_parameters(tree).count == 10 + 7 * 6


def test_combinations_in_words():
    model = pin.Model()
    model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "base")
    model.addJoint(1, pin.JointModelRZ(), pin.SE3(np.eye(3), np.array([0.5, 0.0, 0.0])), "hinge")
    minimal = build_minimal_parameters(FloatingTree(model))
    texts = [minimal.describe(k) for k in range(minimal.count)]
    assert texts[0] == "base.m + hinge.m"
    assert texts[1] == "base.mcx + 0.5 hinge.m"
    assert "hinge.Ixx - hinge.Iyy" in texts
    assert "hinge.Izz" in texts
    assert minimal.units[0] == "kg"


def test_a_joint_without_a_closed_form_is_named():
    model = pin.Model()
    model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "base")
    composite = pin.JointModelComposite(2)
    composite.addJoint(pin.JointModelRX())
    composite.addJoint(pin.JointModelPY())
    model.addJoint(1, composite, pin.SE3.Identity(), "both")
    with pytest.raises(ModelError, match="no closed form of minimal parameters for a JointModelComposite"):
        build_minimal_parameters(FloatingTree(model))
