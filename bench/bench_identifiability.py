"""Time of the structural analysis against random regressors.

``python bench/bench_identifiability.py [--rounds R]``. The processor time of the fastest round counts, because other
processes only ever add time. Targets: 50 ms for an arm with seven joints, 1 s for a humanoid with 40 bodies.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pinocchio as pin
from _table import describe_machine, print_table

from sysid_ros.core.identifiability.mechanism import compare_with_exact
from sysid_ros.core.identifiability.settings import AnalysisSettings
from sysid_ros.core.identifiability.structure import analyze_structure
from sysid_ros.core.identifiability.tree import Rotor
from sysid_ros.core.identifiability.tree_readers import tree_from_model, tree_from_urdf
from sysid_ros.core.model.loader import load_robot

ROOT = Path(__file__).parents[1]
LIMBS = (7, 7, 6, 6, 3, 5, 5)
"""Joints of arms, legs, neck and hands of a humanoid; with its pelvis 40 bodies."""


def humanoid() -> pin.Model:
    """A floating pelvis with limbs whose axes are at right angles, as such robots have them."""
    rng = np.random.default_rng(0)
    model = pin.Model()
    model.name = "humanoid, 40 bodies"
    pelvis = model.addJoint(0, pin.JointModelFreeFlyer(), pin.SE3.Identity(), "pelvis")
    model.appendBodyToJoint(pelvis, pin.Inertia.Random(), pin.SE3.Identity())
    axes = (pin.JointModelRX, pin.JointModelRY, pin.JointModelRZ)
    for limb, joints in enumerate(LIMBS):
        parent = pelvis
        for k in range(joints):
            offset = pin.SE3(np.eye(3), rng.choice([0.0, 0.1, 0.3], 3))
            parent = model.addJoint(parent, axes[int(rng.integers(3))](), offset, f"limb_{limb}_{k}")
            model.appendBodyToJoint(parent, pin.Inertia.Random(), pin.SE3.Identity())
    return model


def rank_of_random_regressors(model: pin.Model) -> int:
    """What one does without the algorithm: twice as many random rows as columns, and their singular values."""
    rng, data, columns = np.random.default_rng(1), model.createData(), 10 * (model.njoints - 1)
    rows = []
    for _ in range(2 * columns // model.nv + 1):
        q = pin.integrate(model, pin.neutral(model), rng.uniform(-2.0, 2.0, model.nv))
        v, a = rng.normal(size=(2, model.nv))
        rows.append(pin.computeJointTorqueRegressor(model, data, q, v, a).copy())
    values = np.linalg.svd(np.concatenate(rows), compute_uv=False)
    return int(np.count_nonzero(values > 1e-9 * values[0]))


def fastest(function: Callable[[], object], rounds: int) -> tuple[float, object]:
    """Least processor time of some rounds [s], and the result."""
    best, result = np.inf, None
    for _ in range(rounds):
        start = time.process_time()
        result = function()
        best = min(best, time.process_time() - start)
    return best, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="rounds, the fastest counts (default 15)")
    rounds = parser.parse_args().rounds
    friction = AnalysisSettings(joint_parameters=("F_c", "F_v", "I_a", "beta"))
    rows = []
    for model in (load_robot("kuka_lbr_med7").pin_model, load_robot("kinova_gen3").pin_model, humanoid()):
        tree = tree_from_model(model)
        rotors = {body.name: Rotor(100.0, body.motion[3:, 0]) for body in tree.bodies if body.dofs == 1}
        with_rotors = tree.with_rotors(rotors)
        plain, structure = fastest(lambda tree=tree: analyze_structure(tree), rounds)
        motors, _ = fastest(lambda tree=with_rotors: analyze_structure(tree), rounds)
        joints, _ = fastest(lambda tree=tree: analyze_structure(tree, friction), rounds)
        whole, _ = fastest(lambda tree=tree: compare_with_exact(analyze_structure(tree)), rounds)
        baseline, rank = fastest(lambda model=model: rank_of_random_regressors(model), rounds)
        times = [1e3 * value for value in (plain, motors, joints, whole, baseline)]
        rows.append([model.name, structure.count, rank, *times])
    print(f"\n{describe_machine()}, load {os.getloadavg()[0]:.1f}\n")
    columns = ["robot", "base parameters", "rank", "analysis, ms", "with rotors, ms", "with friction, ms"]
    print_table(
        [*columns, "analysis and exact geometry, ms", "rank of random regressors, ms"],
        rows,
        "Structural identifiability, one core",
    )
    text = (ROOT / "urdf" / "kuka_lbr_med7.urdf").read_text()
    reading, _ = fastest(lambda: tree_from_urdf(text), rounds)
    print(f"Reading a URDF into a tree: {1e3 * reading:.1f} ms. The rank only counts; it gives no combinations.")


if __name__ == "__main__":
    main()
