"""What the experiment of SAFE-ID section VI is made of: arm, exciting plans, measurements."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from _synthetic import TrueArm, measure

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import INERTIAL, EffortMeaning, RobotModel
from sysid_ros.core.model.sampling import sample_parameters
from sysid_ros.core.regressors.torque import TorqueRegressor
from sysid_ros.core.trajectories.base import State
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.simulation import SensorSimulation
from sysid_ros.papers.safe_id import K_RANGE

Array = np.ndarray

RATE = 4000.0
"""Samples per second; the paper's arm is read at 3.5 to 4 kHz."""
PLANS = 4
DURATION, PLANNING_TIME = 3.0, 1.5  # of a plan, and until the next one takes over [s]
UNCERTAINTY, TORQUE_ERROR = 0.05, 0.025
SAMPLES = 128
"""Samples of a plan in the cost, N_s of the paper."""


def paper_robot(name: str = "kinova_gen3_2f85") -> RobotModel:
    """The arm with the paper's prior (Table I) and under its assumptions.

    Parameters of arm and friction are known within 5 %, torques within 2.5 %, everything else is exact (the paper's
    Assumption 12).
    """
    robot = load_robot(name)
    nothing = np.zeros(robot.n)
    sensors = replace(
        robot.sensors,
        effort_meaning=EffortMeaning.MOTOR_SIDE,
        effort_relative_error=np.full(robot.n, TORQUE_ERROR),
        effort_gain_error=nothing,
        effort_absolute_error=nothing,
        position_resolution=nothing,
        velocity_error=nothing,
        stamp_jitter=0.0,
    )
    radius = UNCERTAINTY * np.abs(robot.theta_nominal)
    box = Box(robot.theta_nominal - radius, robot.theta_nominal + radius)
    return replace(robot, sensors=sensors, theta_box=box, payload_prior=robot.prior("safe_id_table_1"))


class Plans:
    """Consecutive Bezier plans, each followed until the next takes over.

    Args:
        start: State in which the first one begins.
    """

    def __init__(self, start: State):
        self.state, self.plans = start, []

    def add(self, plan: BezierTrajectory) -> None:
        self.plans.append(plan)
        self.state = plan.evaluate(PLANNING_TIME)

    @property
    def duration(self) -> float:
        """[s]; the last plan is followed to its end."""
        return (len(self.plans) - 1) * PLANNING_TIME + DURATION

    def sample(self, times: Array) -> State:
        """States at times (N,) [s], each (N, n)."""
        number = np.clip(np.floor(times / PLANNING_TIME).astype(int), 0, len(self.plans) - 1)
        states = tuple(np.empty((len(times), self.plans[0].n)) for _ in range(3))
        for k, plan in enumerate(self.plans):
            mine = number == k
            for whole, part in zip(states, plan.sample(times[mine] - k * PLANNING_TIME), strict=True):
                whole[mine] = part
        return states


def draw_plans(robot: RobotModel, rng: np.random.Generator, candidates: int) -> Plans:
    """Four plans one after the other, each the best of so many random ones within the limits of the joints.

    The best has the smallest condition number of the inverse-dynamics regressor ``W_e``, SAFE-ID (30), at its samples
    and those of the plans before it. With one candidate the plans are random.
    """
    n = robot.n
    plans = Plans((robot.home.copy(), np.zeros(n), np.zeros(n)))
    regressor = TorqueRegressor(robot, EffortMeaning.LINK_SIDE, bodies=[n])
    before = np.zeros((0, INERTIAL))
    for number in range(PLANS):
        is_last = number == PLANS - 1
        times = np.linspace(0.0, DURATION if is_last else PLANNING_TIME, SAMPLES)
        best, rows, lowest = None, before, np.inf
        for _ in range(candidates):
            plan = draw_plan(robot, plans.state, rng)
            columns = regressor.evaluate(*plan.sample(times))[:, :, :INERTIAL].reshape(-1, INERTIAL)
            together = np.concatenate([before, columns])
            condition = float(np.linalg.cond(together))
            if condition < lowest:
                best, rows, lowest = plan, together, condition
        before = rows
        plans.add(best)
    return plans


def draw_plan(robot: RobotModel, state: State, rng: np.random.Generator) -> BezierTrajectory:
    """A random plan from a state within the limits of position and velocity."""
    scale = 1.0
    while True:
        plan = BezierTrajectory(*state, state[0] + K_RANGE * (scale * rng.uniform(-1.0, 1.0, robot.n)), DURATION)
        limits = robot.limits
        (q_lower, q_upper), (v_lower, v_upper) = plan.position_extrema(), plan.velocity_extrema()
        fits = np.all(q_lower >= limits.q_lower) and np.all(q_upper <= limits.q_upper)
        if fits and np.all(np.maximum(-v_lower, v_upper) <= limits.v_max):
            return plan
        scale *= 0.98


def record(robot: RobotModel, plans: Plans, payload: Array, seed: int) -> tuple[SampleBlock, Array]:
    """Samples of the plans with a true arm drawn from its box and torque errors within theirs; true end effector (10,).

    The errors are independent and uniform. With the joints at rest at the very start the true arm sticks with no
    friction torque.
    """
    rng = np.random.default_rng(seed)
    theta = sample_parameters(robot, rng)
    last = robot.inertial_slice(robot.n)
    theta[last] = robot.theta_nominal[last]
    arm = TrueArm(robot, theta, payload, np.zeros(robot.n), 0.0)
    times = np.arange(round(plans.duration * RATE) + 1) / RATE
    q, v, _ = plans.sample(times)
    tau = arm.mean_torque(plans.sample, np.maximum(times, 1.0 / RATE), 1.0 / RATE)
    sensors = SensorSimulation(robot.sensors, Noise.UNIFORM, seed)
    return measure(sensors, times, q, v, tau), theta[last] + payload
