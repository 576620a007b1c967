"""Solution of an excitation problem from one start with Ipopt; the best iterate is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.excitation.problem import ExcitationProblem

Array = NDArray[np.float64]

_VIOLATION_WEIGHT = 30.0
"""Penalty of an iterate per unit of its largest violation: about the cost of shrinking it afterwards."""


@dataclass(frozen=True)
class Solution:
    """Outcome of one start.

    Attributes:
        x: Coordinates of the best iterate, (size,); it may violate limits a little.
        iterations: Iterations done [-].
        time: Time taken [s].
        status: Return status of the solver.
    """

    x: Array
    iterations: int
    time: float
    status: str


class IpoptSolver:
    """Ipopt with limited-memory Hessian on an :class:`ExcitationProblem`.

    Args:
        problem: The problem.
        max_iterations: Iterations per start [-].
    """

    def __init__(self, problem: ExcitationProblem, max_iterations: int):
        self._problem = problem
        self._max_iterations = max_iterations
        pattern = problem.jacobian_pattern
        columns, rows = np.nonzero(pattern.T)
        self._entries = (rows, columns)
        height, width = pattern.shape
        sparsity = ca.Sparsity.triplet(height, width, rows.tolist(), columns.tolist())
        size, count = problem.size, problem.lower.size
        dense, none = ca.Sparsity.dense, ca.Sparsity(0, 0)
        point, value, rows_of_g = dense(size, 1), dense(1, 1), dense(count, 1)
        # References must live as long as the solver.
        self._functions = {
            "f": _Wrapped("f", [point], [value], lambda x: [problem.cost(x)]),
            "g": _Wrapped("g", [point], [rows_of_g], lambda x: [problem.constraints(x)]),
            "grad_f": _Wrapped("grad_f", [point, none], [value, point], lambda x: list(problem.cost_gradient(x))),
            "jac_g": _Wrapped("jac_g", [point, none], [rows_of_g, sparsity], self._jacobian),
        }
        self._monitor = _IterationMonitor(size, count, self._keep)
        self._best: tuple[float, Array] = (np.inf, np.zeros(size))
        self._iterations = 0
        self._should_stop: Callable[[], bool] = lambda: False

    def solve(self, x0: Array, time_limit: float, should_stop: Callable[[], bool] = lambda: False) -> Solution:
        """Run Ipopt from a start.

        Args:
            x0: Start coordinates, (size,).
            time_limit: Time after which it ends with what it has [s].
            should_stop: Called in every iteration.
        """
        self._best, self._iterations, self._should_stop = (np.inf, x0), 0, should_stop
        begin = time.perf_counter()
        solver = self._build(time_limit)
        solver(x0=x0, lbg=self._problem.lower, ubg=self._problem.upper)
        status = str(solver.stats()["return_status"])
        return Solution(self._best[1], self._iterations, time.perf_counter() - begin, status)

    def _build(self, time_limit: float) -> ca.Function:
        x = ca.MX.sym("x", self._problem.size)
        functions = self._functions
        options: dict[str, Any] = {
            "grad_f": functions["grad_f"],
            "jac_g": functions["jac_g"],
            "iteration_callback": self._monitor,
            "calc_lam_p": False,
            "no_nlp_grad": True,
            "print_time": False,
            "ipopt.print_level": 0,
            "ipopt.sb": "yes",
            "ipopt.hessian_approximation": "limited-memory",
            "ipopt.limited_memory_max_history": 20,
            "ipopt.max_iter": self._max_iterations,
            "ipopt.max_wall_time": max(time_limit, 1e-3),
            "ipopt.tol": 1e-3,
            "ipopt.acceptable_tol": 1e-2,
            "ipopt.acceptable_iter": 5,
        }
        problem: dict[str, Any] = {"x": x, "f": functions["f"](x), "g": functions["g"](x)}
        return ca.nlpsol("excitation", "ipopt", problem, options)

    def _jacobian(self, x: Array) -> list[Any]:
        values = self._problem.constraint_jacobian(x)[self._entries]
        return [self._problem.constraints(x), ca.DM(self._functions["jac_g"].get_sparsity_out(1), values)]

    def _keep(self, x: Array, cost: float, constraints: Array) -> bool:
        self._iterations += 1
        problem = self._problem
        violation = max(np.max(problem.lower - constraints), np.max(constraints - problem.upper), 0.0)
        merit = cost + _VIOLATION_WEIGHT * violation
        if merit < self._best[0]:
            self._best = (merit, x)
        return self._should_stop()


class _Wrapped(ca.Callback):
    """A Python function of one vector as a CasADi function; further inputs are ignored."""

    def __init__(
        self,
        name: str,
        inputs: list[ca.Sparsity],
        outputs: list[ca.Sparsity],
        function: Callable[[Array], list[Any]],
    ):
        ca.Callback.__init__(self)
        self._inputs, self._outputs, self._function = inputs, outputs, function
        self.construct(name, {})

    def get_n_in(self) -> int:
        return len(self._inputs)

    def get_n_out(self) -> int:
        return len(self._outputs)

    def get_sparsity_in(self, index: int) -> ca.Sparsity:
        return self._inputs[index]

    def get_sparsity_out(self, index: int) -> ca.Sparsity:
        return self._outputs[index]

    def eval(self, arguments: Sequence[ca.DM]) -> list[Any]:
        return self._function(np.array(arguments[0]).ravel())


class _IterationMonitor(ca.Callback):
    """Callback that receives every iterate and may end the solver."""

    def __init__(self, size: int, count: int, keep: Callable[[Array, float, Array], bool]):
        ca.Callback.__init__(self)
        self._size, self._count, self._keep = size, count, keep
        self.construct("monitor", {})

    def get_n_in(self) -> int:
        return ca.nlpsol_n_out()

    def get_n_out(self) -> int:
        return 1

    def get_name_in(self, index: int) -> str:
        return ca.nlpsol_out(index)

    def get_name_out(self, index: int) -> str:
        return "ret"

    def get_sparsity_in(self, index: int) -> ca.Sparsity:
        sizes = {"f": 1, "x": self._size, "lam_x": self._size, "g": self._count, "lam_g": self._count}
        rows = sizes.get(ca.nlpsol_out(index), 0)
        return ca.Sparsity.dense(rows, 1) if rows else ca.Sparsity(0, 0)

    def eval(self, arguments: Sequence[ca.DM]) -> list[int]:
        values = {ca.nlpsol_out(index): np.array(argument).ravel() for index, argument in enumerate(arguments)}
        return [int(self._keep(values["x"], float(values["f"][0]), values["g"]))]
