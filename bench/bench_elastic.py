"""Control of elastic joints over stiffness and sensor side.

Run: ``python bench/bench_elastic.py [--robot kinova_gen3]``. An arm whose payload is known to a tenth moves for 1.5 s
and holds for 1 s, with the delay of one period. Printed are the gain and phase margin at home, the largest error of the
measured positions over the bound for the same gains and rigid joints, and the largest change of a torque within a
cycle over its limit. The second table breaks one assumption at a time at the shipped stiffness; the third has the
margins of every joint of the shipped arms.
"""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass, field, replace
from functools import lru_cache

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np  # noqa: E402
from _table import describe_machine, print_table  # noqa: E402

from sysid_ros.core.common.box import Box  # noqa: E402
from sysid_ros.core.common.errors import SysidError  # noqa: E402
from sysid_ros.core.control import RobustController, RobustSettings  # noqa: E402
from sysid_ros.core.control.gains import choose_gains, loop_cases  # noqa: E402
from sysid_ros.core.control.model import ControlModel  # noqa: E402
from sysid_ros.core.control.sampled_loop import LoopMargins, SampledLoop  # noqa: E402
from sysid_ros.core.model.loader import load_robot  # noqa: E402
from sysid_ros.core.model.robot import PositionSide, RobotModel  # noqa: E402
from sysid_ros.core.tracking_bound.bound import tracking_bound  # noqa: E402
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable  # noqa: E402
from sysid_ros.core.trajectories.families import BezierTrajectory  # noqa: E402
from sysid_ros.drivers.arm import InjectedFaults  # noqa: E402
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings  # noqa: E402
from sysid_ros.drivers.mujoco.simulation import load_payload  # noqa: E402

STIFFNESSES = (2500.0, 5000.0, 10000.0, 20000.0, 40000.0)
WRIST = 0.3
ARMS = ("kinova_gen3", "kuka_lbr_iiwa14", "kuka_lbr_med7")
MOTION, HOLD = 1.5, 1.0
STEP = 0.15
COLUMNS = [
    "arm", "sensors", "gains", "c [1/s]", "gain margin [-]", "phase margin [deg]", "error / bound [-]",
    "torque change / limit [-]",
]  # fmt: skip


@dataclass(frozen=True)
class Broken:
    """An assumption that does not hold.

    Attributes:
        name: Which.
        lag: Of the actuators [s].
        missed: Share of cycles without a new torque.
        friction: Factor on Coulomb friction.
        noise: Factor on the velocity error.
        is_known: Whether the gains count on the lag.
    """

    name: str
    lag: float = 0.0
    missed: float = 0.0
    friction: float = 1.0
    noise: float = 1.0
    is_known: bool = False


BROKEN = (
    Broken("as assumed"),
    Broken("actuator lag 1 ms", lag=0.001),
    Broken("actuator lag 5 ms", lag=0.005),
    Broken("actuator lag 5 ms, known", lag=0.005, is_known=True),
    Broken("19 of 500 cycles missed", missed=19.0 / 500.0),
    Broken("three times the Coulomb friction", friction=3.0),
    Broken("ten times the velocity error", noise=10.0),
)


@dataclass
class Known:
    """What the controller knows of an arm and its payload."""

    robot: RobotModel
    payload: np.ndarray
    bounds: dict[RobustSettings, np.ndarray | None] = field(default_factory=dict)

    @property
    def model(self) -> ControlModel:
        around = Box.around(self.payload, 0.1 * np.abs(self.payload) + 1e-3)
        return ControlModel.of_boxes(self.robot, (self.robot.theta_box, around), self.payload)

    @property
    def path(self) -> BezierTrajectory:
        home, still = self.robot.home, np.zeros(self.robot.n)
        return BezierTrajectory(home, still, still, home + STEP, MOTION)

    def bound(self, settings: RobustSettings) -> np.ndarray | None:
        """Return the position bound with rigid joints, (n,) [rad]; None where there is none."""
        if settings not in self.bounds:
            rigid = replace(self.robot, elasticity=None)
            try:
                self.bounds[settings] = tracking_bound(rigid, self.model, self.path, settings).position
            except BoundNotAvailable:
                self.bounds[settings] = None
        return self.bounds[settings]


@lru_cache(maxsize=1)
def known(name: str, payload: str) -> Known:
    robot = load_robot(name, is_elastic=True)
    return Known(robot, load_payload(robot, payload))


def elastic_robot(robot: RobotModel, stiffness: float | None, side: PositionSide, lag: float = 0.0) -> RobotModel:
    """Return the arm with this stiffness (the wrist's is less; None keeps the shipped one), damped in proportion."""
    elasticity = replace(robot.elasticity, position_side=side, actuator_lag=lag, stiffness_error=0.0)
    if stiffness is not None:
        values = np.where(np.arange(robot.n) < 4, stiffness, WRIST * stiffness)
        share = values / elasticity.stiffness
        elasticity = replace(elasticity, stiffness=values, damping=share * elasticity.damping)
    return replace(robot, elasticity=elasticity)


def simulate(facts: Known, robot: RobotModel, settings: RobustSettings, broken: Broken) -> tuple[float, float]:
    """Return the largest error over its bound and the largest change of a torque over its limit."""
    n, theta = robot.n, np.array(robot.theta_nominal)
    theta[10 * n :: 4] *= broken.friction
    worse = replace(robot.sensors, velocity_error=broken.noise * robot.sensors.velocity_error)
    arm = MujocoArm(replace(robot, sensors=worse), theta, facts.payload, settings=MujocoSettings(seed=1))
    arm.inject(InjectedFaults(command_delay=1))
    controller = RobustController(robot, settings)
    model = facts.model
    controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
    arm.connect()
    rng, largest, change, before = np.random.default_rng(2), np.zeros(n), np.zeros(n), None
    start = arm.read().q
    offset = start - facts.path.evaluate(0.0)[0]  # gears deflect under gravity
    cycles = round((MOTION + HOLD) / arm.period)
    for cycle in range(cycles):
        state = arm.read()
        q_d, v_d, a_d = facts.path.evaluate(min(max(cycle * arm.period - 0.2, 0.0), MOTION))
        tau = controller.compute(state.q, state.v, q_d + offset, v_d, a_d)
        tau = np.clip(tau, -robot.limits.tau_max, robot.limits.tau_max)
        if rng.random() >= broken.missed:
            arm.command(tau)
        largest = np.maximum(largest, np.abs(q_d + offset - arm.physics.measured[0]))
        if before is not None:
            change = np.maximum(change, np.abs(tau - before))
        before = tau
    bound = facts.bound(settings)
    ratio = np.nan if bound is None else float((largest / bound).max())
    return ratio, float((change / robot.limits.tau_max).max())


def rows_of(facts: Known, robot: RobotModel, label: str, broken: Broken) -> list[list]:
    """Return the rows of one arm: at the highest gains, and at those of the rule."""
    rows, side = [], robot.elasticity.position_side.value
    try:
        lag = robot.elasticity.actuator_lag if broken.is_known else 0.0
        by_rule = choose_gains(replace(robot, elasticity=replace(robot.elasticity, actuator_lag=lag)), RobustSettings())
        options = {"highest": RobustSettings(), "by rule": by_rule.settings}
    except SysidError:
        options = {"highest": RobustSettings()}
        rows.append([label, side, "by rule", "none", "-", "-", "-", "-"])
    for name, settings in options.items():
        margins = LoopMargins.least(SampledLoop(robot, settings, case).margins() for case in loop_cases(robot))
        if margins.radius >= 1.0:
            shown = ["unstable", "unstable"]
        else:
            shown = [f"{margins.gain.min():.2f}", f"{np.degrees(margins.phase.min()):.0f}"]
        ratio, change = simulate(facts, robot, settings, broken)
        error = "no bound" if np.isnan(ratio) else f"{ratio:.2f}"
        rows.append([label, side, name, f"{settings.bandwidth:.0f}", *shown, error, f"{change:.3f}"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--robot", default="kinova_gen3")
    parser.add_argument("--payload", default="1.0")
    arguments = parser.parse_args()
    facts = known(arguments.robot, arguments.payload)
    rows = []
    for side in PositionSide:
        for stiffness in STIFFNESSES:
            robot = elastic_robot(facts.robot, stiffness, side)
            rows += rows_of(facts, robot, f"{stiffness:.0f} Nm/rad", BROKEN[0])
    title = f"{arguments.robot}, {arguments.payload} kg; wrist {WRIST} of the stiffness. {describe_machine()}"
    print_table(COLUMNS, rows, title)
    rows = []
    for broken in BROKEN:
        robot = elastic_robot(facts.robot, None, facts.robot.elasticity.position_side, broken.lag)
        rows += rows_of(facts, robot, broken.name, broken)
    print_table(COLUMNS, rows, "Shipped stiffness, one assumption broken at a time")
    columns = [
        "arm",
        "joint",
        "c [1/s]",
        "gain margin [-]",
        "phase margin [deg]",
        "delay margin [ms]",
        "noise / limit [-]",
    ]
    rows = []
    for name in ARMS:
        robot = load_robot(name, is_elastic=True)
        chosen = choose_gains(robot, RobustSettings())
        margins, c = chosen.margins, chosen.settings.bandwidth
        for joint, *values in zip(
            robot.joint_names, margins.gain, np.degrees(margins.phase), 1e3 * margins.delay, chosen.noise, strict=True
        ):
            rows.append([name, joint, f"{c:.0f}", *values])
    print_table(columns, rows, "Gains of the shipped arms by the rule, with elastic joints")


if __name__ == "__main__":
    main()
