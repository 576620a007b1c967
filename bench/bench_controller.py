"""Time of one step of the control laws.

Run: ``python bench/bench_controller.py [--steps 20000]``. Target: 99 % of the robust controller's steps take at most
250 us. The baseline is computed torque with one plain call of Pinocchio's RNEA. The tracking bound has its own bench.
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

from sysid_ros.core.control import GravityPid, RobustController  # noqa: E402
from sysid_ros.core.model.loader import load_robot  # noqa: E402


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="kinova_gen3_2f85")
    parser.add_argument("--steps", type=int, default=20000)
    arguments = parser.parse_args()
    robot = load_robot(arguments.robot)
    bench_steps(robot, arguments.steps)


if __name__ == "__main__":
    main()
