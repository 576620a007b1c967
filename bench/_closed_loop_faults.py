"""Assumptions that are broken on purpose in closed-loop trials, and whether anybody notices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from _closed_loop import Geometry, Outcome, Running, Trial, run_trial

from sysid_ros.core.collision.clearance import sphere_centers
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.drivers.arm import ArmState
from sysid_ros.drivers.loop_types import LoopCode, LoopMode
from sysid_ros.drivers.mujoco.arm import MujocoArm

_GAP = 0.005
"""Distance at which an obstacle may appear at least [m]."""
_STEP = 0.01
"""Times at which contact is looked for [s]."""
_RETRY = 100
"""Cycles after which something is tried again."""
_WHEN = (100, 4000)
"""Cycles of motion after which something happens."""
_TICK = 0.002
"""How exactly times are told [s]."""


class Once:
    """Does something once, as soon as the arm has followed plans for so many cycles and it can be done.

    Args:
        cycles: When.
        rng: What it draws from.
    """

    def __init__(self, cycles: int, rng: np.random.Generator):
        self._left, self._rng, self.time = cycles, rng, None

    def __call__(self, running: Running) -> None:
        if running.log.mode[-1] != LoopMode.TRACK or self.time is not None:
            return
        self._left -= 1
        if self._left < 0:
            told = self.act(running)
            if told:
                self.time = 1e-9 * running.loop.now_ns
                running.outcome.event = f"{self.time:.3f} s: {told}"
            self._left = _RETRY

    def act(self, running: Running) -> str:
        """Does it and tells what was done; empty where it cannot be done now."""
        raise NotImplementedError


class RequestBrake(Once):
    """A brake is requested; nothing is wrong."""

    def act(self, running: Running) -> str:
        running.loop.brake("requested by the bench")
        return "brake requested"


class LosePayload(Once):
    """What is held falls down."""

    def act(self, running: Running) -> str:
        running.arm.set_payload(None)
        running.change(payload=np.zeros(10))
        return f"{running.trial.payload[0]:.2f} kg lost"


class TakeLoad(Once):
    """Something heavy hangs on to the tool: as heavy as the heaviest payload allowed, and half as much again."""

    def act(self, running: Running) -> str:
        prior = running.robot.payload_prior
        mass, com = 1.5 * prior.box.upper[0], prior.shape.com.center
        payload = running.trial.payload + from_com_form(mass, com, mass * prior.shape.gyration**2 * np.eye(3))
        running.arm.set_payload(payload)
        running.change(payload=payload)
        return f"{mass:.2f} kg more"


class DoubleFriction(Once):
    """Coulomb and viscous friction double."""

    def act(self, running: Running) -> str:
        running.arm.physics.scale_friction(2.0)
        running.change(theta=with_double_friction(running.robot, running.trial.theta))
        return "friction doubled"


class MoveObstacle(Once):
    """A box appears on the way, where the tool will be a little later; it does not touch the arm yet."""

    def act(self, running: Running) -> str:
        robot, reference = running.robot, running.loop._reference  # noqa: SLF001 - no status tells the future
        tool, path, scene = robot.payload_prior.spheres, reference.trajectory, running.trial.scene
        for ahead in np.arange(self._rng.uniform(0.2, 1.5), path.duration - reference.time, 0.1):
            place = sphere_centers(robot, tool, path.evaluate(reference.time + ahead)[0][None])[0, 0]
            box = Obstacle("moved", place, np.full(3, 0.05))
            geometry = Geometry(robot, Scene((box,)))
            gap = geometry.distances(running.log.q[-1])["obstacle"]
            if gap > _GAP:
                scene = replace(scene, obstacles=(*scene.obstacles, box))
                running.change(scene=scene)
                running.backend.change_scene(scene)
                times = np.arange(reference.time, path.duration, _STEP)
                hit = [geometry.distances(path.evaluate(t)[0])["obstacle"] < 0.0 for t in times]
                contact, brake = _STEP * int(np.argmax(hit)), running.loop._present.certificate.brake_time  # noqa: SLF001
                # A stop goes on for half of its time on the clock of the path.
                running.outcome.labels["avoidable"] = "yes" if contact > 0.5 * brake + 2.0 * _STEP else "no"
                return (
                    f"a box {1e3 * gap:.0f} mm away, touched in {contact:.2f} s without a stop, which takes {brake:g} s"
                )
        return ""


@dataclass(frozen=True)
class Fault:
    """What is broken, and how.

    Attributes:
        trial: The trial with what is wrong from the start.
        told: That in words.
        event: What happens on the way, if anything.
        change_arm: What is done to the arm before the start.
    """

    trial: Trial
    told: str = ""
    event: Once | None = None
    change_arm: Callable[[MujocoArm], None] = lambda arm: None


def take_heavy_payload(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Fault:
    """An object heavier than the prior by 10 to 60 %, or further out by 0.15 m in every direction."""
    shape, heaviest = robot.payload_prior.shape, robot.payload_prior.box.upper[0]
    com = rng.uniform(shape.com.lower, shape.com.upper)
    if rng.integers(0, 2):
        mass = heaviest * rng.uniform(1.1, 1.6)
    else:
        mass, com = heaviest * rng.uniform(0.5, 1.0), com + 0.15 * np.sign(com)
    gyration = shape.gyration * rng.uniform(0.2, 1.0)
    payload = from_com_form(mass, com, mass * gyration**2 * np.eye(3))
    return Fault(replace(trial, payload=payload), f"{mass:.2f} kg at {np.round(com, 2)} m")


def with_double_friction(robot: RobotModel, theta: np.ndarray) -> np.ndarray:
    """Parameters (14 n,) with Coulomb and viscous friction of all joints doubled."""
    theta = theta.copy()
    theta[10 * robot.n :].reshape(robot.n, 4)[:, :2] *= 2.0
    return theta


def double_friction(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Fault:
    """Twice the friction from the start."""
    return Fault(replace(trial, theta=with_double_friction(robot, trial.theta)), "from the start")


def double_friction_in_motion(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Fault:
    """Twice the friction from some time of the motion on."""
    return Fault(trial, event=DoubleFriction(int(rng.integers(*_WHEN)), rng))


def take_load(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Fault:
    """Something heavy hangs on to the tool in motion."""
    return Fault(trial, event=TakeLoad(int(rng.integers(*_WHEN)), rng))


def lose_payload(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Fault:
    """What is held, at least 0.3 kg, falls down in motion."""
    if trial.payload[0] < 0.3:
        trial = replace(trial, payload=0.5 * robot.payload_prior.nominal + 0.5 * trial.payload)
    return Fault(trial, event=LosePayload(int(rng.integers(*_WHEN)), rng))


def request_brake(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Fault:
    """All assumptions hold, but the motion is stopped on the way."""
    return Fault(trial, event=RequestBrake(int(rng.integers(*_WHEN)), rng))


def move_obstacle(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Fault:
    """A box gets into the way after the motion was certified."""
    return Fault(trial, event=MoveObstacle(int(rng.integers(*_WHEN)), rng))


def spoil_torque_sensor(robot: RobotModel, trial: Trial, rng: np.random.Generator) -> Fault:
    """Torques are reported 10 % too large or too small, besides their noise."""
    gain = float(rng.choice([0.9, 1.1]))

    def change(arm: MujocoArm) -> None:
        read = arm.read

        def read_wrongly() -> ArmState:
            state = read()
            return replace(state, tau=gain * state.tau)

        arm.read = read_wrongly

    return Fault(trial, f"factor {gain}", change_arm=change)


BRAKE = "nothing: a brake is requested"
OBSTACLE = "obstacle moved into the way"
FAULTS = MappingProxyType({
    BRAKE: request_brake,
    "payload outside its box": take_heavy_payload,
    "friction doubled": double_friction,
    "friction doubled in motion": double_friction_in_motion,
    OBSTACLE: move_obstacle,
    "payload lost in motion": lose_payload,
    "3.75 kg more in motion": take_load,
    "torque sensor wrong by 10 %": spoil_torque_sensor,
})  # fmt: skip
"""What can be broken, and stops without anything broken, after which nothing may be violated either."""


def run_broken(
    robot: RobotModel, planner: CertifiedPlanner, trial: Trial, plans: int, fault: str, time_limit: float = 1.3
) -> Outcome:
    """Runs a trial in which an assumption does not hold, and says who noticed and when.

    Adds the labels ``noticed`` (empty if nobody did) and ``delay``, the time since the fault began or the arm was taken
    over [s].
    """
    broken = FAULTS[fault](robot, trial, np.random.default_rng((trial.seed, 9)))
    outcome = run_trial(
        robot, planner, broken.trial, plans, time_limit, broken.event, broken.change_arm, is_broken=True
    )
    outcome.event = outcome.event or broken.told
    began = broken.event.time or 0.0 if broken.event is not None else 0.0
    noticed = []
    if outcome.alarm is not None:
        noticed.append(("estimator", outcome.alarm, "alarm"))
    for stop in outcome.stops:
        # What is requested after an alarm is what the alarm was for.
        if not (noticed and stop.code == LoopCode.BRAKE_REQUESTED.name):
            noticed.append(("loop", stop.time, stop.code))
    noticed = [entry for entry in noticed if entry[1] >= began - _TICK]
    who, when, what = min(noticed, key=lambda entry: entry[1], default=("", 0.0, ""))
    # At rest the loop refuses to move where efforts are not what was commanded.
    if not who and outcome.failure == "EXECUTION_FAILED":
        who, when, what = "loop", began, "refuses to move"
    if not who and outcome.failure == "INCONSISTENT":
        who, when, what = "procedure", began, "contradiction"
    outcome.labels |= {
        "noticed": f"{who}: {what}" if who else "",
        "delay": f"{max(when - began, 0.0):.3f}" if who else "",
    }
    return outcome
