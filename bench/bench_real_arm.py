"""Whole-arm fit of a real recording, half predicted from half.

``python bench/bench_real_arm.py FILE [--model NAME] [--prefix fast_] [--quick]``. FILE is a recording as in
docs/reference/files.md, or an NPZ with arrays ``t``, ``q``, ``tau`` in SI units behind the prefix, and optionally
``tau_ext_kuka``, the external torque that the arm's own controller reports while nothing touches it. ``nominal`` is the
model as described, ``fit`` adds all bodies, simple friction, direction of gravity and one torque lag, ``terms chosen``
the friction terms that blocks left out ask for. ``halves`` fits the first and tests the second, and back; ``blocks``
fits every other tenth and tests the rest. ``ridge`` is the reference: least squares around the nominal model with
simple friction and direction of gravity, one weight for all columns, and the torque lag given. ``its own samples`` are
residuals of what was fitted: no parameters explain them. ``bounded regression`` is EXCITE's: base parameters within
bounds, from velocities and accelerations of a tracking differentiator (``TD``) or from the smoothed ones, with the
direction of gravity as modelled and no friction. The bounds are half of the nominal parameters, and the prior of the
payload for the last body. The last rows are what others reached on a longer recording of an LBR Med7; they compare only
with that recording. The second table is below 3 Hz (zero phase): motions like this one have their torques there, and
what is above are vibrations, which no model of rigid bodies explains.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
from pathlib import Path

import numpy as np
from _table import describe_machine, print_lead, print_table

from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.friction_law import FrictionLaw
from sysid_ros.core.estimation.whole_arm import (
    SLOW,
    Motion,
    TermTest,
    WholeArmFit,
    WholeArmProblem,
    fit_whole_arm,
    select_friction,
)
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.papers.baselines.acceleration_regression import fit_bounded_regression, tracked
from sysid_ros.papers.excite import RESIDUALS, part_of, read_samples
from sysid_ros.reports.recordings.files import read_recording

Array = np.ndarray
KNOWN, JERK = 0.5, 20.0
"""Of the baseline: share of the nominal parameters, and largest jerk over the planned acceleration [1/s]."""
RIDGES, REFERENCE_LAG = tuple(10.0**k for k in range(-9, 2)), 0.02
"""Of the reference: weights, of which that is taken which predicts fifths left out best [-], and the torque lag [s]."""
GEAR_CYCLES = 320.0
"""Two per turn of the motor, at 160 to 1."""


def splits(block: SampleBlock) -> dict[str, list[tuple[Array, Array]]]:
    """Samples to fit and to test, by the way they are split."""
    index = np.arange(len(block))
    halves = np.array_split(index, 2)
    tenths = np.array_split(index, 10)
    even, odd = np.concatenate(tenths[::2]), np.concatenate(tenths[1::2])
    return {"halves": [(halves[0], halves[1]), (halves[1], halves[0])], "blocks": [(even, odd), (odd, even)]}


def rms(values: Array) -> Array:
    """Root mean square per joint, (n,)."""
    return np.sqrt(np.mean(values**2, axis=0))


def solve_ridge(gram: Array, side: Array, weight: float) -> Array:
    """Least squares with all unknowns weighted alike, (P,)."""
    return np.linalg.solve(gram + weight * np.eye(len(side)), side)


def predict_by_ridge(robot: RobotModel, known: Motion, other: Motion) -> Array:
    """Predict the torques of another motion by the reference, (N, n) [Nm]."""
    problem, law = WholeArmProblem(robot, [known], FrictionLaw()), FrictionLaw()
    start = x = problem.start
    torque = problem.torque_at(REFERENCE_LAG)
    weight, folds = 1.0 / np.std(torque, axis=0), np.array_split(np.arange(len(torque)), 5)
    for _ in range(5):  # Gauss-Newton steps: gravity times inertial parameters
        jacobian = problem.linearise(x)
        jacobian[:, :, 10 * robot.n + 5 :: 4] = 0.0  # it has no friction before sliding
        target = torque - problem.predict(x) + jacobian @ (x - start)
        rows, wanted = jacobian * weight[:, None], target * weight  # (M, n, P), (M, n)
        size = np.sqrt(np.mean(np.sum(rows**2, axis=1), axis=0))
        size = np.maximum(size, 1e-6 * size.max())
        rows /= size * np.sqrt(len(rows))
        wanted = wanted / np.sqrt(len(rows))
        grams = np.array([np.einsum("tjp,tjq->pq", rows[k], rows[k]) for k in folds])
        sides = np.array([np.einsum("tjp,tj->p", rows[k], wanted[k]) for k in folds])
        gram, side = grams.sum(axis=0), sides.sum(axis=0)
        left = list(zip(folds, gram - grams, side - sides, strict=True))
        costs = [
            sum(np.sum((wanted[k] - rows[k] @ solve_ridge(*sums, ridge)) ** 2) for k, *sums in left) for ridge in RIDGES
        ]
        change = solve_ridge(gram, side, RIDGES[int(np.argmin(costs))]) / size
        weight = 1.0 / rms(target - jacobian @ change)
        x = start + change
    theta, tilt, friction = problem.unpack(x)
    has, none = np.ones(friction.shape, dtype=bool), np.zeros(robot.n)
    found = WholeArmFit(theta, friction, law, has, problem.gravity(tilt), 0.0, REFERENCE_LAG, none, 0.0)
    return found.predict(robot, other)


def known_box(robot: RobotModel) -> Box:
    """Half of every nominal parameter, and whatever of the prior the hand may hold, (14 n,)."""
    radius = np.maximum(KNOWN * np.abs(robot.theta_nominal), robot.theta_box.radius)
    box, last = Box.around(robot.theta_nominal, radius), robot.inertial_slice(robot.n)
    if robot.payload_prior.target != "payload":
        return box
    held = robot.payload_prior.box + Box(box.lower[last], box.upper[last])
    lower, upper = box.lower.copy(), box.upper.copy()
    lower[last], upper[last] = held.lower, held.upper
    return Box(lower, upper)


def with_differentiator(block: SampleBlock, motion: Motion, robot: RobotModel) -> Motion:
    """The motion with what the tracking differentiator makes of differences of positions, sample by sample."""
    backward = np.gradient(block.q, block.seconds, axis=0)
    k = np.searchsorted(block.seconds, motion.seconds - 1e-9)
    return tracked(motion, backward[k], JERK * robot.limits.a_max, filter_steps=3.0)


def compare(
    block: SampleBlock, robot: RobotModel, law: FrictionLaw | None
) -> tuple[list[list], list[list], list[WholeArmFit], list[TermTest]]:
    """Rows of both tables, the fits of the halves, and the tests of friction terms on the first half."""
    rows, slow, fits, tests = [], [], [], []
    for name, pairs in splits(block).items():
        found: dict[str, list[Array]] = {}
        found_below: dict[str, list[Array]] = {}

        def note(
            method: str, motion: Motion, predicted: Array,
            found: dict[str, list[Array]] = found, found_below: dict[str, list[Array]] = found_below,
        ) -> None:  # fmt: skip
            found.setdefault(method, []).append(rms(motion.tau - predicted))
            found_below.setdefault(method, []).append(rms(motion.slow(motion.tau - predicted)))

        for fitted, tested in pairs:
            known, other = (Motion.of(part_of(block, index), robot) for index in (fitted, tested))
            fit = fit_whole_arm(robot, [known])
            note("nominal", other, WholeArmFit.nominal(robot).predict(robot, other))
            note("ridge", other, predict_by_ridge(robot, known, other))
            note("fit", other, fit.predict(robot, other))
            note("fit, its own samples", known, fit.predict(robot, known))
            differentiated = [
                with_differentiator(part_of(block, index), part, robot)
                for index, part in ((fitted, known), (tested, other))
            ]
            for label, (learned, asked) in (
                ("bounded regression, TD", differentiated),
                ("bounded regression, smoothed", (known, other)),
            ):
                baseline = fit_bounded_regression(robot, learned, known_box(robot))
                note(label, asked, baseline.predict(robot, asked))
            if law is not None:
                fit, tests_of_part = select_friction(robot, [known], law)
                tests = tests or list(tests_of_part)
                note("terms chosen", other, fit.predict(robot, other))
            if name == "halves":
                fits.append(fit)
        rows += [[f"{name}, {method}", *rms(np.array(values))] for method, values in found.items()]
        slow += [[f"{name}, {method}", *rms(np.array(values))] for method, values in found_below.items()]
    return rows, slow, fits, tests


def describe_rest(names: tuple[str, ...], rows: list[list], slow: list[list]) -> str:
    """Say how the fit does beside the others, and what is left that no fit explains."""
    whole, rigid = ({row[0]: np.array(row[1:]) for row in table} for table in (rows, slow))
    fit, own, ridge = (rigid[f"halves, {name}"] for name in ("fit", "fit, its own samples", "ridge"))
    above = 1.0 - (fit / whole["halves, fit"]) ** 2
    left = ", ".join(f"{100.0 * share:.0f} % ({name})" for name, share in zip(names, above, strict=True))
    text = (
        f"Of the squared residuals of halves that were not fitted, this much is faster than {SLOW:g} Hz: {left}. "
        f"Below, the fit is better than the ridge fit on {np.sum(fit < ridge)} of {len(names)} joints, and its RMS is "
        f"{np.min(fit / own):.1f} to {np.max(fit / own):.1f} times that of the samples it was fitted to"
    )
    vendor = rigid.get("controller's own, all samples")
    beside = "" if vendor is None else f"; it is better than the controller's own on {np.sum(fit < vendor)}"
    return f"{text}{beside}."


def main(argv: list[str] | None = None) -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", default="kuka_lbr_med7")
    parser.add_argument("--prefix", default="fast_", help="before the names of the arrays of a plain NPZ file")
    parser.add_argument("--quick", action="store_true", help="simple friction only")
    options = parser.parse_args(argv)
    print(describe_machine())
    robot = load_robot(options.model)
    try:
        block, external = read_samples(options.file, options.prefix)
    except (SysidError, OSError, ValueError):
        block, external = read_recording(options.file, robot).samples, None
    law = None if options.quick else FrictionLaw((0.05, 0.2), True, True, (GEAR_CYCLES,))
    rows, slow, fits, tests = compare(block, robot, law)
    whole = Motion.of(block, robot)
    if external is not None:
        values = np.asarray(external, dtype=float)[np.searchsorted(block.seconds, whole.seconds - 1e-9)]
        rows.append(["controller's own, all samples", *rms(values)])
        slow.append(["controller's own, all samples", *rms(whole.slow(values))])
    print_lead(describe_rest(robot.joint_names, rows, slow))
    if robot.name.startswith("kuka_lbr_med7"):
        rows += [[f"longer recording: {name}", *values] for name, values in RESIDUALS.items()]
    title = f"{options.file.name}: torque RMS on data that were not fitted [Nm], {block.seconds[-1]:.3g} s"
    print_table(["", *robot.joint_names], rows, title)
    print_table(["", *robot.joint_names], slow, f"The same below {SLOW:g} Hz [Nm]")
    found = []
    for half, fit in zip(("first half", "second half"), fits, strict=True):
        found += [
            [f"{half}: Coulomb friction [Nm]", *fit.friction[:, 0]],
            [f"{half}: viscous friction [Nm s/rad]", *fit.friction[:, 1]],
            [f"{half}: offset [Nm]", *fit.friction[:, 2]],
        ]
        lag, tilt = 1e3 * fit.torque_lag, np.degrees(fit.tilt)
        print(f"{half}: base tilted by {tilt:.2f} deg, torques {lag:.1f} ms late, prior share {fit.prior_share:g}")
    print_table(["", *robot.joint_names], found, "Parameters of the fits")
    if tests:
        needed = [[test.name, *(("needed" if need else "not needed") for need in test.is_needed)] for test in tests]
        print_table(["friction term", *robot.joint_names], needed, "Does the simple law suffice? (first half)")
    for notice in whole.notices:
        print(notice)
    return 0


if __name__ == "__main__":
    sys.exit(main())
