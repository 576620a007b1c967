"""One step of the control laws, and how tight the tracking bound is.

Run: ``python bench/bench_controller.py [--steps 20000] [--bound]``. Target: 99 % of the robust controller's steps take
at most 250 us. The baseline is computed torque with one plain call of Pinocchio's RNEA.
"""

from __future__ import annotations

import argparse
import gc
import os
import time

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
import pinocchio as pin  # noqa: E402
from _table import describe_machine, print_table  # noqa: E402

from sysid_ros.core.control import (  # noqa: E402
    BoundNotAvailable,
    ControlModel,
    GravityPid,
    RobustController,
    RobustSettings,
    tracking_bound,
)
from sysid_ros.core.model.box import Box  # noqa: E402
from sysid_ros.core.model.loader import load_robot  # noqa: E402
from sysid_ros.core.planning.bezier import BezierTrajectory  # noqa: E402


def computed_torque(robot):
    """The baseline: gains times errors through one RNEA call."""
    model, data = robot.pin_model, robot.pin_model.createData()

    def compute(q, v, q_d, v_d, a_d):
        return pin.rnea(model, data, q, v, a_d + 30.0 * (v_d - v) + 225.0 * (q_d - q))

    return compute


def measure(compute, states) -> np.ndarray:
    """Duration of each step [us]."""
    durations = np.empty(len(states))
    for _ in range(200):
        compute(*states[0])
    gc.collect()
    gc.disable()
    for index, state in enumerate(states):
        begin = time.perf_counter_ns()
        compute(*state)
        durations[index] = time.perf_counter_ns() - begin
    gc.enable()
    return durations * 1e-3


def bench_steps(robot, steps: int) -> None:
    rng = np.random.default_rng(0)
    times = np.linspace(0.0, 2.0 * np.pi, steps)[:, None] + np.arange(robot.n)
    q_d, v_d, a_d = robot.home + 0.3 * np.sin(times), 0.3 * np.cos(times), -0.3 * np.sin(times)
    q, v = (x + 1e-3 * rng.normal(size=x.shape) for x in (q_d, v_d))
    states = list(zip(q, v, q_d, v_d, a_d, strict=True))
    laws = {
        "computed torque, one RNEA (baseline)": computed_torque(robot),
        "gravity PID": GravityPid(robot).compute,
        "robust controller": RobustController(robot).compute,
    }
    rows = []
    for name, compute in laws.items():
        durations = measure(compute, states)
        rows.append([name, *np.percentile(durations, [50, 90, 99, 99.9]), durations.max()])
    title = f"{describe_machine()}, load {os.getloadavg()[0]:.1f} (other processes show in the last columns)"
    print_table(["step", "median [us]", "90 % [us]", "99 % [us]", "99.9 % [us]", "max [us]"], rows, title)


def bench_bounds(robot) -> None:
    prior = robot.payload_prior
    mass_radius = 0.2
    share = mass_radius / prior.nominal[0]
    radius = share * np.maximum(np.abs(prior.nominal), 0.1 * prior.box.width)
    models = {
        "payload unknown (0 to 2.5 kg)": ControlModel.of_boxes(robot),
        "payload known to 0.2 kg": ControlModel(
            robot.theta_nominal, robot.theta_box, prior.nominal, Box.around(prior.nominal, radius)
        ),
    }
    goal = robot.home + np.array([0.8, 0.5, -0.6, 0.7, 0.8, -0.5, 0.9])[: robot.n]
    zero = np.zeros(robot.n)
    motions = {
        "hold": robot.home,
        **{f"{t:g} s": BezierTrajectory(robot.home, zero, zero, goal, t) for t in (8.0, 3.0)},
    }
    rows = []
    for model_name, model in models.items():
        for motion_name, motion in motions.items():
            for delay in (1e-3, 0.0):
                begin = time.perf_counter()
                try:
                    bound = tracking_bound(robot, model, motion, RobustSettings(delay=delay))
                    text = " ".join(f"{x:.2f}" for x in np.degrees(bound.position))
                except BoundNotAvailable:
                    text = "none"
                rows.append([model_name, motion_name, 1e3 * delay, text, time.perf_counter() - begin])
    columns = ["parameters", "motion", "delay [ms]", "bound of the joints [deg]", "time [s]"]
    print_table(columns, rows, "Tracking bound of the robust controller")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--bound", action="store_true", help="compute tracking bounds too (half a minute)")
    arguments = parser.parse_args()
    robot = load_robot(arguments.robot)
    bench_steps(robot, arguments.steps)
    if arguments.bound:
        bench_bounds(robot)


if __name__ == "__main__":
    main()
