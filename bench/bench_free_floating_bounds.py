"""Guaranteed bounds of a free-flying robot and an object it holds.

    python bench/bench_free_floating_bounds.py [--seeds 3] [--trials 40] [--plan-seconds 60]

Widths on the paper's dual-arm robot, containment on small random robots. ``--seeds 1 --trials 2 --plan-seconds 5`` is
the short form; 0 leaves a part out.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

import _table
import numpy as np
from _floating_trials import KINDS, minimal_box, minimal_trial, object_trial
from _space import simulate
from bench_free_floating import plan_motion, sample_times

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.unknowns import object_within
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.space.core.bounds import (
    bound_minimal,
    estimate_object,
    known_minimal,
)
from sysid_ros.space.core.measurements import MomentumRange, Recording, SensorBounds
from sysid_ros.space.core.minimal_parameters import build_minimal_parameters
from sysid_ros.space.core.robot import load_free_flyer

OBJECT = from_com_form(25.0, [0.8, 0.1, -0.15], np.diag([1.5, 2.0, 1.2]))
PROBABILITY = 1e-6
"""With which any error bound of means may be exceeded."""
ENCODER = 1e-5
"""Largest error of a joint position [rad]."""


def disturb(robot, exact, rng, factor: float):
    """Errors as white noise of the paper cut at three standard deviations, times a factor; encoders beside."""

    def noise(deviation, shape):
        return factor * deviation * np.clip(rng.normal(size=shape), -3.0, 3.0)

    linear, angular, joint = robot.noise
    count = len(exact)
    twist = exact.base_twist + np.concatenate([noise(linear, (count, 3)), noise(angular, (count, 3))], axis=1)
    q = exact.q + ENCODER * rng.uniform(-1.0, 1.0, exact.q.shape)
    return replace(exact, base_twist=twist, v=exact.v + noise(joint, exact.v.shape), q=q)


def sensor_bounds(robot, samples: int, block: int, factor: float) -> SensorBounds:
    if block == 1:
        return SensorBounds(*(3.0 * factor * robot.noise), ENCODER)
    return SensorBounds.of_noise(factor * robot.noise, ENCODER, block, samples * (6 + robot.n), PROBABILITY)


def bound_widths(robot, minimal, motion) -> None:
    truth, rows = minimal.values(robot.truth), []
    for share, factor, rate, block in ((0.5, 1.0, 10, 1), (0.5, 0.1, 10, 1)):
        exact = simulate(robot, robot.truth, motion, sample_times(motion, rate))
        data = disturb(robot, exact, np.random.default_rng(0), factor)
        recording = Recording(data, sensor_bounds(robot, len(data), block, factor), block=block)
        prior = minimal_box(minimal, robot.truth, share, 0.5)
        begin = time.process_time()
        found = bound_minimal(robot, minimal, [recording], prior)
        kept = found.box.width / prior.width
        mass = minimal.names.index("base.m")
        row = (np.count_nonzero(kept < 0.99), np.count_nonzero(kept < 0.5), np.median(kept), found.box.radius[mass])
        kind = "every sample" if block == 1 else f"means of {block}"
        inside = "yes" if found.box.contains(truth) else "NO"
        rows.append((f"+-{100 * share:.0f} %", factor, kind, *row, inside, time.process_time() - begin))
    columns = ["prior", "noise / paper's", "error bounds of", "narrowed", "halved", "median width / prior"]
    columns += ["radius of total mass [kg]", "truth inside", "CPU [s]"]
    _table.print_table(columns, rows, "Guaranteed bounds of all 52 minimal parameters at once, 67 intervals")


def object_widths(robot, minimal, motion, seeds: int) -> None:
    parameters = robot.truth.copy()
    parameters[-10:] += OBJECT
    part, rows = motion.part(0, 30), []
    com = OBJECT[1:4] / OBJECT[0]
    calm, pushed = MomentumRange(), MomentumRange(Box(-0.5 * np.ones(6), 0.5 * np.ones(6)), 1e-3, 1e-3)
    cases = (
        ("1 %", 1, 4, calm, 1.0),
        ("1 %", 25, 100, calm, 1.0),
        ("0.1 %", 25, 100, calm, 1.0),
        ("0.1 %", 25, 100, pushed, 1.0),
        ("0.1 %", 25, 100, calm, 0.1),
    )
    for rest, block, rate, momentum, factor in cases:
        exact = simulate(robot, parameters, part, sample_times(part, rate))
        box = minimal_box(minimal, robot.truth, 0.01 * float(rest.split()[0]), 0.02)
        inside, masses, radii, errors = 0, [], [], []
        for seed in range(seeds):
            data = disturb(robot, exact, np.random.default_rng(seed), factor)
            sensors = sensor_bounds(robot, len(data), block, factor)
            recording = Recording(data, sensors, momentum, block)
            found = estimate_object(
                robot, "joint_6", [recording], known_minimal(minimal, box), object_within(60.0, 1.5)[0]
            )
            inside += found.bounds.box.contains(OBJECT) and found.com_box.contains(com)
            masses.append(found.bounds.box.radius[0])
            radii.append(1e3 * found.com_box.radius.max())
            errors.append((abs(found.mass - 25.0), 1e3 * np.abs(found.com - com).max()))
        kind = "every sample" if block == 1 else f"means of {block}"
        known = "zero" if momentum is calm else "+-0.5, pushed"
        mean = np.mean(errors, axis=0)
        rows.append((rest, factor, kind, known, np.mean(masses), np.mean(radii), *mean, f"{inside} of {seeds}"))
    columns = ["robot known to", "noise / paper's", "error bounds of", "momentum", "radius of mass [kg]"]
    columns += ["radius of CoM [mm]", "mass error [kg]", "CoM error [mm]", "truth inside"]
    title = (
        f"An object of 25 kg in the hand, 30 intervals: guaranteed bounds and point estimate, mean over {seeds} seeds"
    )
    _table.print_table(columns, rows, title)


def containment(trials: int) -> None:
    rows = []
    for name, trial in (("minimal parameters", minimal_trial), ("object", object_trial)):
        for kind in KINDS:
            found = [trial(seed, kind) for seed in range(trials)]
            inside = sum(one[0] for one in found)
            rows.append((name, kind, trials, inside, np.median([one[1] for one in found])))
    rows.append(("all", "", sum(row[2] for row in rows), sum(row[3] for row in rows), np.nan))
    columns = ["bounds of", "errors", "trials", "truth inside", "median width / prior"]
    _table.print_table(columns, rows, "Containment: small random robots, parameters and errors at their bounds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--plan-seconds", type=float, default=60.0)
    arguments = parser.parse_args()
    print(_table.describe_machine())
    robot = load_free_flyer("dual_arm")
    minimal = build_minimal_parameters(robot.tree)
    if arguments.seeds:
        motion = plan_motion(robot, arguments.plan_seconds)
        object_widths(robot, minimal, motion, arguments.seeds)
        bound_widths(robot, minimal, motion)
    if arguments.trials:
        containment(arguments.trials)


if __name__ == "__main__":
    main()
