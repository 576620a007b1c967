"""Throughput of the regressors against a Python loop over Pinocchio.

``python bench/bench_regressors.py [robot] [--samples N] [--rounds R]``. Candidates and loops get the same samples, as
many as a window has, so that arithmetic is measured rather than memory. They take turns and the processor time of the
fastest round counts, because other processes only ever add time. No regressor can be faster than its entries are
written: the second table has the time in which numpy fills as many bytes with a constant, in the same rounds.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import pinocchio as pin
from _table import describe_machine, print_table

from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.regressors.momentum import MomentumRegressor
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.papers.baselines.slotine_li import SlotineLiRegressor

WINDOW = 400
STEP = 1e-6


class PinocchioLoop:
    """What one writes without this package: Pinocchio's regressor sample by sample."""

    def __init__(self, model: pin.Model):
        self.model, self.data, self.n = model, model.createData(), model.nv
        self.weightless = model.copy()
        self.weightless.gravity.linear = np.zeros(3)
        self.zero = np.zeros(self.n)

    def _momentum(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        return pin.computeJointTorqueRegressor(self.weightless, self.data, q, self.zero, v)

    def momentum_and_rate(self, q: np.ndarray, v: np.ndarray) -> None:
        """``W_c`` from ``C^T v = dH/dt v - C v``, with ``dH/dt v`` as a finite difference; friction columns last."""
        momenta, rates = np.zeros((2, len(q), self.n, 14 * self.n))
        split, joints = 10 * self.n, np.arange(self.n)
        for k in range(len(q)):
            momentum = self._momentum(q[k], v[k])
            moved = self._momentum(q[k] + STEP * v[k], v[k])
            bias = pin.computeJointTorqueRegressor(self.model, self.data, q[k], v[k], self.zero)
            momenta[k, :, :split] = momentum
            rates[k, :, :split] = (moved - momentum) / STEP - bias
        momenta[:, joints, split + 4 * joints + 2] = v
        rates[:, joints, split + 4 * joints] = -np.sign(v)
        rates[:, joints, split + 4 * joints + 1] = -v
        rates[:, joints, split + 4 * joints + 3] = -1.0

    def torque(self, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> None:
        regressor = np.empty((len(q), self.n, 10 * self.n))
        for k in range(len(q)):
            regressor[k] = pin.computeJointTorqueRegressor(self.model, self.data, q[k], v[k], a[k])

    def slotine_li(self, q: np.ndarray, v: np.ndarray, v_a: np.ndarray, a_a: np.ndarray) -> np.ndarray:
        """Polarisation as the textbook has it: H a_a + g, and c(v + v_a) - c(v) - c(v_a) without gravity, halved."""
        first = pin.computeJointTorqueRegressor(self.model, self.data, q, self.zero, a_a)
        both, own, reference = (
            pin.computeJointTorqueRegressor(self.weightless, self.data, q, u, self.zero) for u in (v + v_a, v, v_a)
        )
        return first + 0.5 * (both - own - reference)

    def torque_derivatives(self, q: np.ndarray, v: np.ndarray, a: np.ndarray) -> None:
        """Derivatives of the torque for one set of parameters."""
        result = np.empty((3, len(q), self.n, self.n))
        for k in range(len(q)):
            result[:, k] = pin.computeRNEADerivatives(self.model, self.data, q[k], v[k], a[k])

    def derivatives(self, q: np.ndarray, v: np.ndarray) -> None:
        """Only ``dp/dq`` and ``dp/dv``: Pinocchio's Python interface has no second derivatives of the energy."""
        result = np.empty((2, len(q), self.n, self.n))
        for k in range(len(q)):
            dq, _, da = pin.computeRNEADerivatives(self.weightless, self.data, q[k], self.zero, v[k])
            result[0, k], result[1, k] = dq, da


def fastest(candidates: dict[str, tuple[Callable[[], object], int]], rounds: int) -> dict[str, float]:
    """Least processor time per sample of each candidate, the candidates taking turns [s]."""
    best = dict.fromkeys(candidates, np.inf)
    for _ in range(rounds):
        for name, (function, samples) in candidates.items():
            start = time.process_time()
            function()
            best[name] = min(best[name], (time.process_time() - start) / samples)
    return best


def repeat(function: Callable[[], object], times: int) -> Callable[[], None]:
    def run() -> None:
        for _ in range(times):
            function()

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("robot", nargs="?", default="kinova_gen3_2f85")
    parser.add_argument("--samples", type=int, default=WINDOW, help=f"samples per round (default {WINDOW}, a window)")
    parser.add_argument("--rounds", type=int, default=50, help="rounds, the fastest counts (default 50)")
    arguments = parser.parse_args()
    if arguments.samples < WINDOW:
        parser.error(f"--samples {arguments.samples}: a window has {WINDOW}, and one is timed; give at least as many")

    robot = load_robot(arguments.robot)
    rng, count = np.random.default_rng(0), arguments.samples
    q, v, v_a, a = rng.uniform(-2.0, 2.0, size=(4, count, robot.n))
    loop = PinocchioLoop(robot.pin_model)
    momentum, torque, slotine_li = MomentumRegressor(robot), TorqueRegressor(robot), SlotineLiRegressor(robot)
    last = MomentumRegressor(robot, bodies=(robot.n,))
    reverse = TorqueRegressor(robot, sign_width=0.02)
    shape = (count, robot.n, momentum.columns.count)
    weight = rng.normal(size=shape)
    out, weights = (np.empty(shape), np.empty(shape)), np.full(WINDOW, 1e-3)

    def differentiate() -> None:
        reverse.evaluate(q, v, a, out=out[0])
        reverse.pull_back(q, v, a, weight)

    def windows() -> None:
        for start in range(0, count - WINDOW + 1, WINDOW):
            part = slice(start, start + WINDOW)
            momentum.integrate(q[part], v[part], weights)
            momentum.momentum(q[[start]], v[[start]])

    rows = {
        "W_m and W_c, all columns": ("momentum", (lambda: momentum.evaluate(q, v, out=out), count)),
        "W_m and W_c, payload and friction columns": ("momentum", (lambda: last.evaluate(q, v), count)),
        f"windows of {WINDOW}: integral of W_c, W_m at the ends": ("momentum", (windows, count // WINDOW * WINDOW)),
        "torque regressor W, all columns": ("torque", (lambda: torque.evaluate(q, v, a, out=out[0]), count)),
        "W and sum(G dW) by q, v, a for any G (N, n, 14 n)": ("reverse", (differentiate, count)),
        "sum(G dW) alone, where W is known": ("reverse", (lambda: reverse.pull_back(q, v, a, weight), count)),
        "Slotine-Li Y, batch": ("slotine", (lambda: slotine_li.evaluate(q, v, v_a, a), count)),
        "Slotine-Li Y, one sample at a time": (
            "slotine",
            (repeat(lambda: slotine_li.evaluate_one(q[0], v[0], v_a[0], a[0]), count), count),
        ),
        "W_m, W_c and their derivatives by q and v": (
            "derivatives",
            (lambda: momentum.differentiate(q, v), count),
        ),
    }
    baselines = {
        "momentum": (lambda: loop.momentum_and_rate(q, v), count),
        "torque": (lambda: loop.torque(q, v, a), count),
        "reverse": (lambda: loop.torque_derivatives(q, v, a), count),
        "slotine": (repeat(lambda: loop.slotine_li(q[0], v[0], v_a[0], a[0]), count), count),
        "derivatives": (lambda: loop.derivatives(q, v), count),
    }
    entries = robot.n * momentum.columns.count  # of one regressor and sample
    slopes = 2 * robot.n * momentum.columns.inertial * (1 + 2 * robot.n)
    written = {name: 8 * entries for name in ("torque regressor W, all columns", "Slotine-Li Y, batch")}
    written |= {"W_m and W_c, all columns": 16 * entries, "W_m, W_c and their derivatives by q and v": 8 * slopes}
    room = np.empty(count * max(written.values()), dtype=np.uint8)
    fills = {f"fill {size}": (partial(room[: count * size].view(float).fill, 1.0), count) for size in written.values()}
    candidates = {**{name: row[1] for name, row in rows.items()}, **baselines, **fills}
    best = fastest(candidates, arguments.rounds)

    print(f"\n{describe_machine()}, Pinocchio {pin.__version__}, load {os.getloadavg()[0]:.1f}\n")
    print_table(
        ["quantity", "us/sample", "samples/s", "Pinocchio loop, us/sample", "times faster"],
        [
            [name, best[name] * 1e6, round(1 / best[name]), best[base] * 1e6, best[base] / best[name]]
            for name, (base, _) in rows.items()
        ],
        f"Regressors of {robot.name}, {robot.n} joints, {count} samples, one core",
    )
    print_table(
        ["quantity", "bytes written a sample", "numpy fills them in, us", "us/sample", "times the limit"],
        [
            [name, size, best[f"fill {size}"] * 1e6, best[name] * 1e6, best[name] / best[f"fill {size}"]]
            for name, size in written.items()
        ],
        "Physical limit: writing the entries",
    )
    print(
        "Pinocchio loops: W_c with one finite difference (3 calls); W without friction columns and checks (1 call); "
        "sum(G dW) only for G = 1 theta^T, one theta (1 call); Y by textbook polarisation, likewise (4 calls); "
        "derivatives dp/dq and dp/dv only (1 call)."
    )


if __name__ == "__main__":
    main()
