"""Assumptions that are broken on purpose in closed-loop trials, and whether anybody notices."""

from __future__ import annotations

import functools
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from _closed_loop import Event, Outcome, Running, Trial, run_trial

from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.certified_planner import CertifiedPlanner
from sysid_ros.core.planning.clearance import sphere_centers
from sysid_ros.core.planning.scene import Obstacle
from sysid_ros.drivers.arm import ArmState
from sysid_ros.drivers.loop_types import LoopMode
from sysid_ros.drivers.mujoco_arm import MujocoArm

_AHEAD = 0.4
"""The obstacle appears where the tool will be so much later [s]."""


def heavy_payload(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Trial:
    """An object heavier than the prior by 10 to 60 %, or as heavy but further out."""
    shape, heaviest = robot.payload_prior.shape, robot.payload_prior.box.upper[0]
    com = rng.uniform(shape.com.lower, shape.com.upper)
    if rng.integers(0, 2):
        mass = heaviest * rng.uniform(1.1, 1.6)
    else:
        mass, com = heaviest * rng.uniform(0.5, 1.0), com + 0.15 * np.sign(com)
    gyration = shape.gyration * rng.uniform(0.2, 1.0)
    return replace(trial, payload=from_com_form(mass, com, mass * gyration**2 * np.eye(3)))


def double_friction(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Trial:
    """Coulomb and viscous friction of all joints doubled."""
    theta = trial.theta.copy()
    theta[10 * robot.n :].reshape(robot.n, 4)[:, :2] *= 2.0
    return replace(trial, theta=theta)


def wrong_torque_sensor(arm: MujocoArm, gain: float) -> None:
    """Lets an arm report torques that are wrong by a factor, besides its noise."""
    read = arm.read

    def read_wrongly() -> ArmState:
        state = read()
        return replace(state, tau=gain * state.tau)

    arm.read = read_wrongly


class Once:
    """Does something once, as soon as the arm has followed plans for so many cycles.

    Args:
        cycles: When.
    """

    def __init__(self, cycles: int):
        self._left, self.time = cycles, -1.0

    def __call__(self, running: Running) -> None:
        if running.log.mode[-1] != LoopMode.TRACK or self._left < 0:
            return
        self._left -= 1
        if self._left < 0:
            self.time = 1e-9 * running.loop.now_ns
            running.outcome.event = f"{self.time:.3f} s: {self.act(running)}"

    def act(self, running: Running) -> str:
        raise NotImplementedError


class LosePayload(Once):
    """What is held falls down."""

    def act(self, running: Running) -> str:
        running.arm.set_payload(None)
        running.change(payload=np.zeros(10))
        return f"{running.trial.payload[0]:.2f} kg lost"


class MoveObstacle(Once):
    """A box appears close to where the tool will be."""

    def act(self, running: Running) -> str:
        robot, reference = running.robot, running.loop._reference  # noqa: SLF001 - no status tells the future
        time = min(reference.time + _AHEAD, reference.trajectory.duration)
        tool = robot.payload_prior.spheres
        place = sphere_centers(robot, tool, reference.trajectory.evaluate(time)[0][None])[0, 0]
        scene = running.trial.scene
        scene = replace(scene, obstacles=(*scene.obstacles, Obstacle("moved", place, np.full(3, 0.05))))
        running.change(scene=scene)
        running.backend.change_scene(scene)
        return f"a box appears where the tool will be in {time - reference.time:.2f} s"


FAULTS = MappingProxyType({
    "payload outside its box": "change",
    "friction doubled": "change",
    "obstacle moved into the way": "event",
    "payload lost in motion": "event",
    "torque sensor wrong by 10 %": "sensor",
})  # fmt: skip
"""What can be broken."""


def run_broken(
    robot: RobotModel, planner: CertifiedPlanner, trial: Trial, plans: int, fault: str, time_limit: float = 1.3
) -> Outcome:
    """Runs a trial in which an assumption does not hold, and says who noticed and when.

    Adds the labels ``noticed`` (empty if nobody did) and ``delay`` [s] since the fault began or the first motion.
    """
    rng = np.random.default_rng((trial.seed, 9))
    event: Event | None = None
    change = functools.partial(wrong_torque_sensor, gain=rng.choice([0.9, 1.1]))
    told = ""
    if fault == "payload outside its box":
        trial = heavy_payload(robot, trial, rng)
        told = f"{trial.payload[0]:.2f} kg"
    elif fault == "friction doubled":
        trial, told = double_friction(robot, trial, rng), "from the start"
    elif fault == "torque sensor wrong by 10 %":
        told = f"factor {change.keywords['gain']}"
    elif fault == "payload lost in motion":
        if trial.payload[0] < 0.3:
            trial = replace(trial, payload=0.5 * robot.payload_prior.nominal + 0.5 * trial.payload)
        event = LosePayload(int(rng.integers(100, 4000)))
    else:
        event = MoveObstacle(int(rng.integers(100, 4000)))
    is_sensor = fault == "torque sensor wrong by 10 %"
    outcome = run_trial(
        robot, planner, trial, plans, time_limit, event, change if is_sensor else lambda arm: None, is_broken=True
    )
    outcome.event = outcome.event or ("" if isinstance(event, Once) else told)
    began = event.time if isinstance(event, Once) else 0.0
    noticed = []
    if outcome.stops:
        first = min(float(text.split()[0]) for text in outcome.stops)
        codes = {text.split(":")[0].split()[-1] for text in outcome.stops}
        noticed.append(("loop", first, "/".join(sorted(codes))))
    if outcome.alarm is not None:
        noticed.append(("estimator", outcome.alarm, "alarm"))
    noticed = [entry for entry in noticed if entry[1] >= began]
    who, when, what = min(noticed, key=lambda entry: entry[1], default=("", 0.0, ""))
    is_refused = not who and outcome.ended.startswith("INCONSISTENT")
    outcome.labels |= {
        "noticed": f"{who}: {what}" if who else "procedure: INCONSISTENT" if is_refused else "",
        "delay": f"{when - began:.3f}" if who else "",
    }
    return outcome
