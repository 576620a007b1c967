"""Hands-on guiding by a simulated person.

``python bench/bench_guiding.py [--robot NAME ...] [--trials N] [--first K]``. As in EXCITE's section V-C, the same
admittance runs with three models: the nominal one without the tool ("nominal"), the nominal one with the tool as a
vendor weighs it, mass and CoM but no inertia ("vendor-like"), and one fitted to 25 s of motion of the same arm
("identified"); beside them the truth. Arm and friction are drawn in their box, the tool weighs 0.5 to 1.5 kg, and
sensors err within their limits. Docking: the hand leads the tip of a 0.15 m endoscope 0.1 m along the axis of a trocar
that is 0.1 m away; its largest distance from that axis inside counts, and the time until it is in. The figures show
both of every trial.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pinocchio as pin
from _lockstep_guiding import Hand, LockstepGuiding
from _table import describe_machine, print_figure, print_table
from matplotlib.figure import Figure

from sysid_ros.core.common.box import Box
from sysid_ros.core.control import RobustController
from sysid_ros.core.model.inertia import from_com_form, to_com_form, transform_parameters
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import add_payload
from sysid_ros.core.model.robot import RobotModel, tool_transform
from sysid_ros.core.online_model.least_squares import ModelObserver, Observation, OnlineFitSettings, OnlineLeastSquares
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopModel, LoopSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.mujoco.simulation import draw_truth
from sysid_ros.emulators.lockstep import run_for

MODELS = ("nominal", "vendor-like", "identified", "truth")
DRIFT_TIME, MOVE_TIME, MOVE_WAY = 5.0, 3.0, 0.15
TIP = np.array([0.0, 0.0, 0.15])
DEPTH, BEFORE = 0.1, 0.02
"""Way of the tip inside the trocar, and where it begins before it [m]."""


class Person:
    """A hand whose wish moves smoothly from place to place."""

    def __init__(self, places: list[pin.SE3], duration: float):
        self.hand, self.places, self.duration, self.time = Hand(), places, duration, 0.0

    def __call__(self, tool: pin.SE3, twist: np.ndarray) -> np.ndarray:
        leg = min(int(self.time / self.duration), len(self.places) - 2)
        x = min(1.0, self.time / self.duration - leg)
        share, rate = x**3 * (10 - 15 * x + 6 * x * x), 30 * x * x * (1 - x) ** 2 / self.duration
        start, end = self.places[leg], self.places[leg + 1]
        way = end.translation - start.translation
        wanted = pin.SE3(end.rotation, start.translation + share * way)
        self.time += 1e-3
        return self.hand.wrench(wanted, rate * way, tool, twist)


def draw_tool(robot: RobotModel, rng: np.random.Generator) -> np.ndarray:
    mass = rng.uniform(0.5, 1.5)
    inertia = mass * np.diag(rng.uniform(0.03, 0.05, 3) ** 2)
    com = np.append(rng.uniform(-0.02, 0.02, 2), rng.uniform(0.04, 0.1))
    return transform_parameters(from_com_form(mass, com, inertia), *tool_transform(robot))


def identify(robot: RobotModel, theta: np.ndarray, tool: np.ndarray, seed: int) -> np.ndarray:
    """Fit all parameters to 25 s of motion, from the nominal ones with the tool as weighed."""
    prior = add_payload(robot.theta_nominal, weigh(tool))
    arm = MujocoArm(robot, theta, tool, settings=MujocoSettings(seed=seed))
    arm.connect()
    controller = RobustController(robot)
    controller.set_model(robot.theta_nominal, robot.theta_box, weigh(tool), robot.payload_prior.box)
    scale = np.maximum(robot.theta_box.radius, 1e-6)
    scale[robot.inertial_slice(robot.n)] += 0.05 * np.abs(tool) + 1e-3
    fit = OnlineLeastSquares(prior, robot.n, OnlineFitSettings(is_growing=True, weight=0.98), scale)
    observer = ModelObserver(robot, Observation.MOMENTUM, arm.period, 100)
    rng = np.random.default_rng((seed, 3))
    rates = rng.uniform(0.8, 2.0, (3, robot.n))
    # A share of the arm's speed limits, and room around home.
    sizes = 0.25 * robot.limits.v_max / rates / 3.0
    sizes = np.minimum(sizes, 0.15)
    state = arm.read()
    for k in range(25_000):
        t, ramp = k * arm.period, min(1.0, k * arm.period / 2.0)
        q = robot.home + ramp * (sizes * np.sin(rates * t)).sum(axis=0)
        v = ramp * (sizes * rates * np.cos(rates * t)).sum(axis=0)
        a = -ramp * (sizes * rates**2 * np.sin(rates * t)).sum(axis=0)
        arm.command(controller.compute(state.q, state.v, q, v, a))
        state = arm.read()
        equation = observer.note(state.q, state.v, state.tau)
        if equation is not None:
            fit.add(*equation)
    return fit.solve().theta


def weigh(tool: np.ndarray) -> np.ndarray:
    """Return the tool as a controller's own weighing gives it: mass and CoM without inertia."""
    mass, com, _ = to_com_form(tool)
    return from_com_form(mass, com, np.zeros((3, 3)))


def build(robot: RobotModel, theta: np.ndarray, tool: np.ndarray, model: np.ndarray, seed: int) -> LockstepGuiding:
    """Return a guided arm whose controller and observer have the model (14 n,), payload included."""
    arm = MujocoArm(robot, theta, tool, settings=MujocoSettings(seed=seed))
    in_use = replace(LoopModel.nominal(robot), theta=model, theta_box=Box.around(model, 0.0), payload=np.zeros(10))
    loop = ControlLoop(arm, RobustController(robot), robot, LoopSettings(allows_guiding=True), in_use)
    loop.connect()
    run_for(loop, 0.5)
    loop.guide()
    return LockstepGuiding(loop, arm)


def drift(run: LockstepGuiding) -> np.ndarray:
    """Return how far the tool has gone without a hand after each step of 1 ms [mm]."""
    start, _ = run.tool()
    ways = []
    for _ in range(round(DRIFT_TIME / 1e-3)):
        run.step()
        ways.append(np.linalg.norm(run.tool()[0].translation - start.translation))
    return 1e3 * np.array(ways)


def effort(run: LockstepGuiding, direction: np.ndarray) -> tuple[float, float]:
    """Return the mean and the largest force of the hand on its way [N]."""
    start, _ = run.tool()
    end = pin.SE3(start.rotation, start.translation + MOVE_WAY * direction)
    person = Person([start, end], MOVE_TIME)
    forces = [np.linalg.norm(run.step(person).hand[:3]) for _ in range(round(MOVE_TIME / 1e-3))]
    return float(np.mean(forces)), float(np.max(forces))


def dock(run: LockstepGuiding) -> tuple[np.ndarray, float]:
    """Return depth and distance of the tip from the trocar's axis in it, (K, 2) [mm], and when it is in [s]."""
    start, _ = run.tool()
    side = pin.SE3(start.rotation, start.translation + 0.1 * start.rotation[:, 0])
    inside = pin.SE3(start.rotation, side.translation + (BEFORE + DEPTH) * start.rotation[:, 2])
    axis, entry = start.rotation[:, 2], side.act(TIP) + BEFORE * start.rotation[:, 2]
    person, path, arrived = Person([start, side, side, inside], 2.5), [], np.inf
    for k in range(12_000):
        tip = run.step(person).tool.act(TIP) - entry
        depth = float(axis @ tip)
        if depth > 0.0:
            path.append((depth, float(np.linalg.norm(tip - depth * axis))))
        if depth > 0.8 * DEPTH:
            arrived = 1e-3 * k
            break
    return 1e3 * np.array(path).reshape(-1, 2), arrived


def draw(name: str, drifts: dict[str, list[np.ndarray]], paths: dict[str, list[np.ndarray]]) -> Path:
    """Draw drift over time and distance from the axis over depth, a line for each trial, and return the file."""
    figure = Figure(figsize=(9.0, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    for k, model in enumerate(MODELS):
        for trial, (ways, path) in enumerate(zip(drifts[model], paths[model], strict=True)):
            style = {"color": f"C{k}", "linewidth": 1.0, "label": model if trial == 0 else None}
            left.plot(1e-3 * np.arange(1, len(ways) + 1), ways, **style)
            right.plot(*path.T, **style)
    left.set_yscale("symlog", linthresh=0.1)
    left.set_ylim(bottom=0.0)
    left.set_xlabel("time without a hand [s]")
    left.set_ylabel("drift [mm]")
    right.set_yscale("log")
    right.set_xlabel("depth in the trocar [mm]")
    right.set_ylabel("off axis [mm]")
    right.legend(loc="best", fontsize="small")
    path = Path(tempfile.mkdtemp()) / f"guiding_{name}.png"
    figure.savefig(path, dpi=80)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--robot", nargs="+", default=["kuka_lbr_med7", "kinova_gen3"])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    print(describe_machine())
    for name in options.robot:
        robot = load_robot(name)
        results: dict[str, list[list[float]]] = {model: [] for model in MODELS}
        drifts: dict[str, list[np.ndarray]] = {model: [] for model in MODELS}
        paths: dict[str, list[np.ndarray]] = {model: [] for model in MODELS}
        for seed in range(options.first, options.first + options.trials):
            rng = np.random.default_rng((seed, 11))
            theta, tool = draw_truth(robot, "random", seed), draw_tool(robot, rng)
            direction = rng.normal(size=3)
            direction /= np.linalg.norm(direction)
            models = {
                "nominal": robot.theta_nominal,
                "vendor-like": add_payload(robot.theta_nominal, weigh(tool)),
                "identified": identify(robot, theta, tool, seed),
                "truth": add_payload(theta, tool),
            }
            for model, parameters in models.items():
                runs = [build(robot, theta, tool, parameters, seed) for _ in range(3)]
                ways, forces, (path, arrived) = drift(runs[0]), effort(runs[1], direction), dock(runs[2])
                drifts[model].append(ways)
                paths[model].append(path)
                results[model].append([ways[-1], *forces, np.max(path[:, 1], initial=0.0), arrived])
        rows = []
        for model, values in results.items():
            table = np.array(values)
            cells = [f"{np.median(column):.1f} ({np.max(column):.1f})" for column in table.T]
            rows.append([model, *cells])
        print_table(
            ["model", f"drift in {DRIFT_TIME:g} s [mm]", "mean force [N]", "largest force [N]", "off axis [mm]",
             "docked after [s]"],
            rows,
            title=f"{name}: median (largest) of {options.trials} arms and tools; dead zone 2 N, 0.1 Nm",
        )  # fmt: skip
        print_figure(str(draw(name, drifts, paths)), f"{name}: drift without a hand, and the tip in the trocar.")


if __name__ == "__main__":
    main()
