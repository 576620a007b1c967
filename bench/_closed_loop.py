"""One randomised closed-loop trial of Algorithm 2, and the checks of it against the true state of the simulated arm.

Checks share nothing with what they check but the robot model: collisions are decided by coal (through Pinocchio's
geometry models) between all spheres of links that are not neighbours, torques by Pinocchio's RNEA of the true arm.
Arms are simulated by MuJoCo, with Runge-Kutta or semi-implicit steps, or by steps of our own with Pinocchio, so that no
error of a simulation is shared by all of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import coal
import mujoco
import numpy as np
import pinocchio as pin
from _pinocchio_physics import PinocchioPhysics

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.held_feedback import WINDOW
from sysid_ros.core.certification.stop_model import LimitKind, PlanRejected
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.control import build_controller
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.procedure import IdentificationFailed, IdentificationSettings, run_identification
from sysid_ros.core.tracking_bound.scalar_loop import BoundNotAvailable
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.arm import InjectedFaults
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopCode, LoopMode, LoopSample
from sysid_ros.drivers.modes import Noise
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.emulators.lockstep import LockstepBackend, LockstepSettings

Array = np.ndarray

SIMULATIONS = ("MuJoCo, Runge-Kutta", "MuJoCo, semi-implicit", "Pinocchio")
NOISES = (Noise.UNIFORM, Noise.ADVERSARIAL, Noise.GAIN)
GROUND = 0.0
MAX_OBSTACLES = 8
LATEST = 2.4
"""Longest simulated planning time that is drawn [s]; a part is asked for 1.75 s before it has to be there."""
HELD_AFTER = 0.5
"""For so long after the end of a plan its bounds are proven too [s]."""
HELD_SHARE = 0.5
"""Share of the torque limits that holding may take where it cannot be proven before weighing [-]."""
ROUNDING = 1e-9
SEMI_IMPLICIT_STEPS = 10
"""Steps per cycle of the method of first order."""


@dataclass(frozen=True)
class Trial:
    """Everything that is drawn.

    Attributes:
        seed: What it is drawn from.
        theta: True parameters of the arm, (14 n,).
        payload: True payload, (10,).
        noise: How the sensors use their allowed errors.
        scene: Obstacles and ground.
        start: Start posture, (n,) [rad].
        planning_times: Simulated planning times [s].
        delay: Cycles from a measurement to the torque computed from it.
        stiffness_share: Where the stiffness of elastic joints is, from the softest (-1) to the stiffest (1) [-].
        simulation: One of :data:`SIMULATIONS`.
        labels: What kind of draw it is, for tables.
    """

    seed: int
    theta: Array
    payload: Array
    noise: Noise
    scene: Scene
    start: Array
    planning_times: tuple[float, ...]
    delay: int = 0
    stiffness_share: float = 0.0
    simulation: str = SIMULATIONS[0]
    labels: dict[str, str] = field(default_factory=dict)


@dataclass
class Log:
    """True and commanded motion, one entry per cycle; read with :meth:`array`."""

    q: list[Array] = field(default_factory=list)
    v: list[Array] = field(default_factory=list)
    desired: list[tuple[Array, Array, Array]] = field(default_factory=list)
    tau: list[Array] = field(default_factory=list)
    mode: list[int] = field(default_factory=list)
    plan: list[str] = field(default_factory=list)
    deflection: list[tuple[Array, Array]] = field(default_factory=list)
    estimates: list[tuple[int, ParameterEstimate]] = field(default_factory=list)


NO_START = "NO_START_POSTURE"
"""No posture was found in which the arm can be held whatever it carries."""
ERROR = "ERROR"
"""The trial itself could not be run."""
TOO_LATE, REFUSED = "TOO_LATE", "REFUSED"
"""The loop did not follow a plan: it came too late, or for another reason."""


@dataclass
class Violation:
    """Something that must not happen.

    Attributes:
        kind: The limit, bound or rule that was broken.
        text: By how much, where and when, for people.
    """

    kind: str
    text: str


@dataclass
class Refusal:
    """A plan that was not found, or was refused.

    Attributes:
        code: Name of the planner's code; :data:`TOO_LATE` or :data:`REFUSED` where the loop did not follow it.
        text: Why, for people.
    """

    code: str
    text: str


@dataclass
class Stop:
    """A transition of the loop that was not planned.

    Attributes:
        time: When [s].
        target: Name of the mode it went to.
        code: Name of the code that says why.
        text: Why, for people.
    """

    time: float
    target: str
    code: str
    text: str


@dataclass
class Outcome:
    """What came of a trial, as it is kept in files of results.

    Attributes:
        seed: Which one.
        labels: What kind of trial.
        ratios: Largest use of each bound or limit, by kind [-]; above 1 it is broken.
        margins: Smallest distances by kind [m, rad]; below 0 they are collisions or left limits.
        violations: What must not happen, and did.
        ended: How the procedure ended, for people.
        failure: Why no stop rule ended it: the name of an error code, :data:`NO_START` or :data:`ERROR`; None if one
            did.
        stops: Transitions of the loop that were not planned.
        plans: Plans that were followed.
        asked: Plans that were asked for.
        refused: Why there was no plan, or why one was refused.
        motion: Time of motion [s].
        conditions: Condition number of the information after each plan.
        widths: Final half widths over those of the prior, (10,).
        planning: Times that planning took [s].
        event: What was broken on purpose, and when.
        alarm: When the estimator said that the data contradict the assumptions [s]; None if it did not.
        seconds: Time of the processor it took [s].
    """

    seed: int
    labels: dict[str, str]
    ratios: dict[str, float] = field(default_factory=dict)
    margins: dict[str, float] = field(default_factory=dict)
    violations: list[Violation] = field(default_factory=list)
    ended: str = ""
    failure: str | None = None
    stops: list[Stop] = field(default_factory=list)
    plans: int = 0
    asked: int = 0
    refused: list[Refusal] = field(default_factory=list)
    motion: float = 0.0
    conditions: list[float] = field(default_factory=list)
    widths: list[float] = field(default_factory=list)
    planning: list[float] = field(default_factory=list)
    event: str = ""
    alarm: float | None = None
    seconds: float = 0.0

    @classmethod
    def of_entry(cls, entry: dict) -> Outcome:
        """Return the outcome that an entry of a file of results holds."""
        parts = {"violations": Violation, "refused": Refusal, "stops": Stop}
        return cls(
            **{name: [parts[name](**one) for one in value] if name in parts else value for name, value in entry.items()}
        )

    def complain(self, kind: str, text: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(kind, text))


# What is drawn


def draw_trial(robot: RobotModel, planner: CertifiedPlanner, seed: int) -> Trial | None:
    """A random trial; None where no posture was found in which the arm can be held for certain."""
    rng = np.random.default_rng((seed, 5))
    corner = bool(rng.integers(0, 2))
    theta = sample_parameters(robot, rng, corner)
    kind = ("inside", "inside", "corner", "none")[rng.integers(0, 4)]
    payload = np.zeros(10) if kind == "none" else sample_payload(robot.payload_prior, rng, kind == "corner")
    noise = NOISES[rng.integers(0, len(NOISES))]
    times = tuple(float(t) for t in rng.uniform(0.2, 1.3, 4))
    late, delay = rng.integers(0, 4), int(np.random.default_rng((seed, 6)).integers(0, 2))
    stiffness = float(np.random.default_rng((seed, 7)).choice([-1.0, 0.0, 1.0])) if robot.elasticity else 0.0
    simulation = SIMULATIONS[int(np.random.default_rng((seed, 8)).choice(3, p=[0.25, 0.25, 0.5]))]
    if late == 0:
        times = (0.0,)
    elif late == 1:
        times = (*times[:3], float(rng.uniform(1.3, LATEST)))
    for count in np.repeat(np.arange(rng.integers(0, MAX_OBSTACLES + 1), -1, -1), 2):
        scene = Scene(random_obstacles(rng, int(count)), ground_height=GROUND)
        start = draw_start(robot, planner, scene, rng, TrueTorque(robot, theta, payload))
        if start is not None:
            labels = {
                "arm": "corner" if corner else "inside", "payload": kind, "noise": noise.value,
                "obstacles": str(count), "planning": ("none", "some late", "in time", "in time")[late],
                "delay": str(delay), "simulation": simulation,
            }  # fmt: skip
            if robot.elasticity:
                labels["stiffness"] = {-1.0: "softest", 0.0: "nominal", 1.0: "stiffest"}[stiffness]
            return Trial(seed, theta, payload, noise, scene, start, times, delay, stiffness, simulation, labels)
    return None


def random_obstacles(rng: np.random.Generator, count: int) -> tuple[Obstacle, ...]:
    """Turned boxes within reach that leave the base free."""
    found: list[Obstacle] = []
    while len(found) < count:
        center, half = rng.uniform([-0.9, -0.9, 0.0], [0.9, 0.9, 1.2]), rng.uniform(0.03, 0.15, 3)
        box = Obstacle(f"box {len(found)}", center, half, pin.exp3(rng.normal(size=3)))
        if box.distance(np.array([[0.0, 0.0, z] for z in (0.0, 0.1, 0.2, 0.3)])).min() > 0.12:
            found.append(box)
    return tuple(found)


def assume_prior(robot: RobotModel, scene: Scene | None = None) -> Assumptions:
    """What is assumed before anything is measured, under the control law that the loop uses."""
    law = RobustSettings.of_law(build_controller("robust", robot).law)
    return Assumptions.of_payload(robot, scene=scene, control_law=law)


def draw_start(
    robot: RobotModel,
    planner: CertifiedPlanner,
    scene: Scene,
    rng: np.random.Generator,
    torque: TrueTorque,
    tries: int = 40,
) -> Array | None:
    """A free posture in which the arm can be held: half of them near home, half anywhere.

    Whatever it carries, for certain, where that can be proven at home; else, as of arms whose payload has to be weighed
    first, with what it carries, by a share of the torque limits, and all of them near home.
    """
    limits, still = robot.limits, np.zeros(robot.n)
    lower, upper = np.maximum(limits.q_lower, -np.pi) + 0.02, np.minimum(limits.q_upper, np.pi) - 0.02
    geometry, assumptions, proofs = Geometry(robot, scene), assume_prior(robot, scene), 0
    is_provable = can_hold(planner, robot.home, assume_prior(robot))
    for _ in range(tries):
        near = robot.home + rng.normal(scale=0.6, size=robot.n)
        q = np.clip(near if rng.integers(0, 2) or not is_provable else rng.uniform(lower, upper), lower, upper)
        if min(geometry.distances(q).values()) < 0.01 or proofs >= 6:
            continue
        if not is_provable:
            held = np.abs(torque.evaluate(q[None], still[None], still[None])[0])
            if np.all(held <= HELD_SHARE * limits.tau_max):
                return q
            continue
        proofs += 1
        if can_hold(planner, q, assumptions):
            return q
    return None


def can_hold(planner: CertifiedPlanner, q: Array, assumptions: Assumptions, seconds: float = 0.5) -> bool:
    """Whether holding a posture for a time can be proven."""
    still = np.zeros(q.size)
    try:
        planner.certify(BezierTrajectory(q, still, still, q, seconds), assumptions)
    except (PlanRejected, BoundNotAvailable):
        return False
    return True


# Independent checks


class Geometry:
    """Distances of the spheres of arm and payload by coal.

    Args:
        robot: The arm; all spheres of bodies that are not neighbours are compared, but those of links that never touch.
        scene: Obstacles and ground.
    """

    def __init__(self, robot: RobotModel, scene: Scene):
        self._model, self._data = robot.pin_model, robot.pin_model.createData()
        base = robot.pin_model.frames[robot.pin_model.getFrameId(robot.base_frame)].placement
        spheres = (*robot.spheres, *robot.payload_prior.spheres)
        self._never_touch = {frozenset(pair) for pair in robot.never_touch}
        boxes = [
            (o.name, base * pin.SE3(o.rotation, o.center), coal.Box(*(2.0 * o.half_extents))) for o in scene.obstacles
        ]
        up = base.rotation @ np.array([0.0, 0.0, 1.0])
        height = scene.ground_height if scene.ground_height is not None else -10.0
        ground = [("ground", pin.SE3.Identity(), coal.Halfspace(up, height + up @ base.translation))]
        self._parts = {"self-collision": self._build(spheres, []), "ground": self._build(spheres, ground)}
        if boxes:
            self._parts["obstacle"] = self._build(spheres, boxes)

    def _build(self, spheres, things) -> tuple[pin.GeometryModel, pin.GeometryData]:  # noqa: ANN001
        model = pin.GeometryModel()
        ids = [
            model.addGeometryObject(
                pin.GeometryObject(f"{i} {s.link}", s.body, pin.SE3(np.eye(3), s.center), coal.Sphere(s.radius))
            )
            for i, s in enumerate(spheres)
        ]
        for name, placement, shape in things:
            thing = model.addGeometryObject(pin.GeometryObject(name, 0, placement, shape))
            for index, sphere in zip(ids, spheres, strict=True):
                if sphere.body > 0:
                    model.addCollisionPair(pin.CollisionPair(index, thing))
        if not things:
            for i, one in enumerate(spheres):
                for j, other in enumerate(spheres):
                    if other.body - one.body >= 2 and frozenset((one.link, other.link)) not in self._never_touch:
                        model.addCollisionPair(pin.CollisionPair(ids[i], ids[j]))
        return model, model.createData()

    def distances(self, q: Array) -> dict[str, float]:
        """Smallest distances at a posture (n,) [rad] by kind [m]; negative ones are collisions."""
        found = {}
        for kind, (model, data) in self._parts.items():
            closest = pin.computeDistances(self._model, self._data, model, data, q)
            found[kind] = float(data.distanceResults[closest].min_distance)
        return found

    def name_closest(self, kind: str, q: Array) -> str:
        """The two things that are closest at a posture."""
        model, data = self._parts[kind]
        pair = model.collisionPairs[pin.computeDistances(self._model, self._data, model, data, q)]
        return " and ".join(model.geometryObjects[i].name for i in (pair.first, pair.second))


class TrueTorque:
    """Torque that the true arm needs for a desired motion, with the friction that the controller compensates."""

    def __init__(self, robot: RobotModel, theta: Array, payload: Array):
        self._model = robot.pin_model.copy()
        for body in range(1, robot.n + 1):
            parameters = theta[robot.inertial_slice(body)] + (payload if body == robot.n else 0.0)
            self._model.inertias[body] = pin.Inertia.FromDynamicParameters(parameters)
        self._data, self._friction, self._settings = self._model.createData(), robot.friction(theta).T, RobustSettings()

    def evaluate(self, q: Array, v: Array, a: Array) -> Array:
        """Torques (N, n) [Nm]."""
        coulomb, viscous, armature, offset = self._friction
        rigid = np.array([pin.rnea(self._model, self._data, *state).copy() for state in zip(q, v, a, strict=True)])
        return rigid + armature * a + coulomb * self._settings.friction_share(v) + viscous * v + offset


# One trial


def build_arm(robot: RobotModel, trial: Trial) -> MujocoArm:
    """The simulated arm of a trial."""
    is_semi_implicit = trial.simulation == SIMULATIONS[1]
    settings = MujocoSettings(noise=trial.noise, seed=trial.seed, stiffness_share=trial.stiffness_share)
    if is_semi_implicit:
        settings = replace(settings, substeps=SEMI_IMPLICIT_STEPS)
    arm = MujocoArm(robot, trial.theta, trial.payload, trial.start, settings)
    if is_semi_implicit:
        model = arm.physics._model  # noqa: SLF001 - nobody else integrates like this
        model.opt.integrator = mujoco.mjtIntegrator.mjINT_IMPLICITFAST
        model.dof_solref[:, 0] = 2.0 * model.opt.timestep  # what this method allows: friction stops no sooner
    elif trial.simulation == SIMULATIONS[2]:
        arm.physics = PinocchioPhysics(robot, trial.theta, trial.payload, arm.period, trial.stiffness_share)
        arm.physics.place(trial.start)
    return arm


@dataclass(frozen=True)
class Change:
    """What is true from a cycle on."""

    cycle: int
    stamp_ns: int
    theta: Array
    payload: Array
    scene: Scene


@dataclass
class Running:
    """A trial under way, as the events that break an assumption see it."""

    robot: RobotModel
    trial: Trial
    arm: MujocoArm
    loop: ControlLoop
    backend: LockstepBackend
    log: Log
    outcome: Outcome
    changes: list[Change] = field(default_factory=list)

    def change(self, **what: Array | Scene) -> None:
        """From the next cycle on the truth is another one: ``theta``, ``payload`` or ``scene``."""
        self.changes.append(replace(self.changes[-1], cycle=len(self.log.mode), stamp_ns=self.loop.now_ns, **what))

    def true_payload(self, stamp_ns: int) -> Array:
        """The payload at a time, (10,)."""
        return [change.payload for change in self.changes if change.stamp_ns <= max(stamp_ns, 0)][-1]

    def scene_at(self, cycle: int) -> Scene:
        """What surrounds the arm in a cycle."""
        return [change.scene for change in self.changes if change.cycle <= cycle][-1]

    def stretches(self) -> list[tuple[slice, Change]]:
        """Cycles with the truth that belongs to them."""
        ends = [*(change.cycle for change in self.changes[1:]), len(self.log.mode)]
        return [(slice(change.cycle, end), change) for change, end in zip(self.changes, ends, strict=True)]


Event = Callable[[Running], None]


def run_trial(
    robot: RobotModel,
    planner: CertifiedPlanner,
    trial: Trial,
    plans: int,
    time_limit: float = 1.3,
    event: Event | None = None,
    change_arm: Callable[[MujocoArm], None] = lambda arm: None,
    is_broken: bool = False,
) -> Outcome:
    """Runs one trial and checks it.

    Args:
        robot: The arm.
        planner: May have been used for other trials.
        trial: What is drawn.
        plans: Largest number of plans.
        time_limit: Time a plan may take in real time [s].
        event: Called after every cycle; breaks an assumption.
        change_arm: Called before the start; the same.
        is_broken: Whether an assumption is broken, so that alarms are no false ones.
    """
    begin, log = time.process_time(), Log()
    arm = build_arm(robot, trial)
    arm.inject(InjectedFaults(command_delay=trial.delay))
    change_arm(arm)
    loop = ControlLoop(arm, build_controller("robust", robot), robot)
    estimator = StreamingEstimator(robot, on_update=lambda found: log.estimates.append((loop.now_ns, found)))

    def note_alarm() -> None:
        if outcome.alarm is None and backend.records.estimates and not backend.records.estimates[-1][1].is_consistent:
            outcome.alarm = 1e-9 * loop.now_ns

    def note(sample: LoopSample | None) -> None:
        truth, status = arm.truth(), loop.status()
        log.q.append(truth.q)
        log.v.append(truth.v)
        nothing = np.full(robot.n, np.nan)
        log.desired.append((nothing,) * 3 if sample is None else (sample.q_d, sample.v_d, sample.a_d))
        log.tau.append(nothing if sample is None else sample.tau_command)
        log.mode.append(int(loop.mode))
        log.plan.append(status.plan_id or "")
        log.deflection.append(arm.physics.deflection)
        note_alarm()
        if event is not None:
            event(running)

    timing = LockstepSettings(trial.planning_times, time_limit, max(LockstepSettings.first_time_limit, time_limit))
    backend = LockstepBackend(loop, planner, estimator, trial.scene, timing, note)
    outcome = Outcome(trial.seed, dict(trial.labels))
    running = Running(
        robot, trial, arm, loop, backend, log, outcome, [Change(0, 0, trial.theta, trial.payload, trial.scene)]
    )
    wanted = IdentificationSettings(trajectories=plans, max_motion_time=600.0, shrink_threshold=0.0, weighing_time=1.0)
    final = None
    try:
        final = run_identification(backend.ports, backend.make_policy(), wanted)
        outcome.ended = final.stop_reason
    except IdentificationFailed as failure:
        outcome.ended, outcome.failure = str(failure), failure.code.name
    note_alarm()
    status = loop.status()
    outcome.stops = [
        Stop(1e-9 * t.stamp_ns, t.target.name, t.code.name, t.reason)
        for t in status.transitions
        if t.code is not LoopCode.OK and t.target in (LoopMode.BRAKE, LoopMode.FAULT)
    ]
    records = backend.records
    outcome.asked = len(records.attempts)
    outcome.plans = len(records.executed)
    outcome.refused = [
        Refusal(a.failure.code.name, str(a.failure)) for a in records.attempts if a.failure is not None
    ] + [Refusal(TOO_LATE if r.late is not None else REFUSED, str(r)) for r in records.refusals]
    found = [a.plan for a in records.attempts if a.plan is not None]
    # A certified move to where more can be proven is not meant to excite: it has neither number nor statistics.
    outcome.conditions = [np.inf if plan.condition_number is None else float(plan.condition_number) for plan in found]
    outcome.planning = [float(plan.statistics.seconds["total"]) for plan in found if plan.statistics is not None]
    if final is not None:
        outcome.widths = (final.estimate.radius / robot.payload_prior.box.radius).tolist()
    check_motion(running)
    check_estimates(running)
    if not is_broken:
        alarms = [one.alarm_text for _, one in backend.records.estimates if not one.is_consistent]
        outcome.violations += [Violation("alarm", text) for text in alarms[:1]]
        outcome.violations += [Violation("stop", f"{s.code} after {s.time:.3f} s: {s.text}") for s in outcome.stops]
    outcome.seconds = time.process_time() - begin
    return outcome


def check_motion(running: Running) -> None:
    """Compares the true motion with limits, environment and the bounds of the certificates."""
    robot, log, outcome = running.robot, running.log, running.outcome
    q, v, tau, mode = (np.array(values) for values in (log.q, log.v, log.tau, log.mode))
    q_d, v_d, a_d = np.array(log.desired).transpose(1, 0, 2)
    moving = (mode == LoopMode.TRACK) | (mode == LoopMode.BRAKE)
    outcome.motion = float(moving.sum() * running.arm.period)
    limits = robot.limits
    room = np.minimum(q - limits.q_lower, limits.q_upper - q)
    _note_margin(running, "position limit", room.min(axis=1), lambda k: f"q = {q[k]}")
    _note_ratio(running, "velocity limit", np.abs(v) / limits.v_max, "rad/s", v)
    commanded = np.where(np.isfinite(tau), tau, 0.0)
    _note_ratio(running, "torque limit", np.abs(commanded) / limits.tau_max, "Nm", commanded)
    minute = round(WINDOW / running.arm.period)
    total = np.concatenate([np.zeros((1, robot.n)), np.cumsum(commanded**2, axis=0)])
    mean = np.sqrt((total[1:] - total[np.maximum(np.arange(len(q)) + 1 - minute, 0)]) / minute)
    _note_ratio(running, "continuous torque limit", mean / limits.tau_continuous, "Nm", mean)
    if robot.elasticity is not None:  # what estimator and certificates count on
        deflection, rate = np.array(log.deflection)[moving].transpose(1, 0, 2)
        allowed = robot.elasticity.deflection_rate
        _note_ratio(running, "deflection of the gears", np.abs(deflection) / robot.deflection, "rad", deflection)
        _note_ratio(running, "deflection rate of the gears", np.abs(rate) / allowed, "rad/s", rate)
    saturated = running.loop.status().saturated_cycles
    if saturated:
        outcome.complain("torque saturation", f"a torque limit cut the command in {saturated} cycles")
    # An arm that rests is looked at every 20 ms.
    looked, found, tell = np.flatnonzero(moving | (np.arange(len(q)) % 20 == 0)), [], {}
    for part, change in running.stretches():
        geometry = Geometry(robot, change.scene)
        for k in looked[(looked >= part.start) & (looked < part.stop)]:
            found.append(geometry.distances(q[k]))
            tell[int(k)] = geometry
    for kind in sorted({kind for one in found for kind in one}):
        values = np.array([one.get(kind, np.inf) for one in found])

        def name(k: int, kind: str = kind) -> str:
            return tell[int(looked[k])].name_closest(kind, q[looked[k]])

        _note_margin(running, kind, values, name, looked)
    check_bounds(running, q, v, q_d, v_d, a_d, tau, mode)
    check_margins(running, q, v, tau, looked, found)


def check_bounds(running: Running, q: Array, v: Array, q_d: Array, v_d: Array, a_d: Array, tau: Array, mode: Array):
    """Errors over the bounds of the plan that is followed or has just ended, and of the posture held first."""
    robot, log = running.robot, running.log
    needed = np.zeros_like(q)
    for part, change in running.stretches():
        is_known = np.isfinite(q_d[part]).all(axis=1)
        rows = np.arange(part.start, part.stop)[is_known]
        needed[rows] = TrueTorque(robot, change.theta, change.payload).evaluate(q_d[rows], v_d[rows], a_d[rows])
    ids = {a.plan.plan_id: a for a in running.backend.records.attempts if a.plan is not None}
    plan = np.array(log.plan)
    for begin, end in _runs(plan, mode):
        part, now = slice(begin, end), int(mode[begin])
        attempt = ids.get(str(plan[begin]))
        suffix = {int(LoopMode.TRACK): "", int(LoopMode.BRAKE): ", in a stop", int(LoopMode.HOLD): ", held after"}
        if attempt is None and now == LoopMode.HOLD and begin and mode[begin - 1] == LoopMode.TRACK:
            attempt = ids.get(str(plan[begin - 1]))
            part = slice(begin, min(end, begin + round(HELD_AFTER / running.arm.period)))
        if attempt is None or now not in suffix:
            continue
        certificate = attempt.plan.certificate
        for kind, error, bound, unit in (
            ("position error", q_d[part] - q[part], certificate.tracking_bound, "rad"),
            ("velocity error", v_d[part] - v[part], certificate.velocity_bound, "rad/s"),
            ("feedback torque", tau[part] - needed[part], certificate.torque_bound, "Nm"),
        ):
            _note_ratio(running, kind + suffix[now], np.abs(error) / bound, unit, error, part.start)
        squares, duration = certificate.torque_squares, attempt.plan.duration
        if now == LoopMode.HOLD:
            mean = np.mean(tau[part] ** 2, axis=0, keepdims=True)
            _note_ratio(
                running, "squared torque, held after", mean / np.maximum(squares[-1], 1e-9), "Nm", mean, part.start
            )
        elif now == LoopMode.TRACK:
            edges = np.rint(np.linspace(0.0, duration, len(squares)) / running.arm.period).astype(int)
            whole = np.flatnonzero(edges[1:] <= part.stop - part.start)
            means = np.array([np.mean(tau[part.start + edges[k] : part.start + edges[k + 1]] ** 2, 0) for k in whole])
            if len(means):
                _note_ratio(running, "mean square of torques", means / squares[whole], "Nm^2", means, part.start)
    first = np.flatnonzero((mode != LoopMode.HOLD) & (mode != LoopMode.IDLE))
    until = int(first[0]) if first.size else len(q)
    try:
        hold = assume_prior(robot).bound(q_d[0])
    except BoundNotAvailable:
        return  # nothing is claimed before the payload is weighed
    error = q_d[:until] - q[:until]
    _note_ratio(running, "position error, held before", np.abs(error) / hold.take_over, "rad", error)


def check_margins(running: Running, q: Array, v: Array, tau: Array, looked: Array, found: list[dict[str, float]]):
    """Whether the true motion keeps the margins that the certificates state."""
    robot, log = running.robot, running.log
    ids = {a.plan.plan_id: a for a in running.backend.records.attempts if a.plan is not None}
    limits, plan, mode = robot.limits, np.array(log.plan), np.array(log.mode)
    for begin, end in _runs(plan, mode):
        attempt = ids.get(str(plan[begin]))
        # A stop stays on the path, but needs other torques.
        if attempt is None or mode[begin] not in (LoopMode.TRACK, LoopMode.BRAKE):
            continue
        margins, part = {left.limit: left.value for left in attempt.plan.certificate.margins}, slice(begin, end)
        inside = (looked >= begin) & (looked < end)
        true = {
            LimitKind.POSITION: np.minimum(q[part] - limits.q_lower, limits.q_upper - q[part]).min(),
            LimitKind.VELOCITY: (1.0 - np.abs(v[part]) / limits.v_max).min(),
        }
        if mode[begin] == LoopMode.TRACK:
            true[LimitKind.TORQUE] = (1.0 - np.abs(tau[part]) / limits.tau_max).min()
        certified_scene = running.changes[0].scene
        for kind in ("ground", "obstacle") if running.scene_at(begin) is certified_scene else ():
            values = [one[kind] for one, is_in in zip(found, inside, strict=True) if is_in and kind in one]
            true[LimitKind(kind)] = min(values, default=np.inf)
        for limit, value in true.items():
            if limit in margins:
                name, slack = limit.value, float(value - margins[limit])
                _keep_smallest(running.outcome.margins, f"true less certified: {name}", slack)
                if slack < -1e-7:
                    _complain(running, f"certified margin of {name}", begin, f"{value:.6g} < {margins[limit]:.6g}")


def check_estimates(running: Running) -> None:
    """Whether the truth is inside everything that was said about it."""
    outcome, records = running.outcome, running.backend.records
    largest, first = 0.0, ""
    for stamp, estimate in (*running.log.estimates, *records.estimates):
        if not estimate.is_consistent:
            continue
        payload = running.true_payload(stamp)
        share = np.abs(payload - estimate.box.center) / np.maximum(estimate.box.radius, 1e-300)
        largest = max(largest, float(share.max()))
        if not estimate.contains(payload) and not first:
            name = estimate.names[int(share.argmax())]
            first = f"{name}: {share.max():.6g} half widths from the middle, {1e-9 * stamp:.3f} s"
    if first:
        outcome.complain("truth in payload bounds", first)
    wrong = [stamp for stamp, model in records.models if not model.payload_box.contains(running.true_payload(stamp))]
    if wrong:
        outcome.complain("truth in the model", f"given at {1e-9 * wrong[0]:.3f} s")
    outcome.ratios["truth in payload bounds"] = largest


def _runs(plan: Array, mode: Array) -> list[tuple[int, int]]:
    """Beginnings and ends of stretches with the same plan and mode."""
    cuts = np.flatnonzero((plan[1:] != plan[:-1]) | (mode[1:] != mode[:-1])) + 1
    edges = [0, *cuts.tolist(), len(plan)]
    return list(zip(edges[:-1], edges[1:], strict=True))


def _note_ratio(running: Running, kind: str, ratio: Array, unit: str, values: Array, offset: int = 0) -> None:
    if not len(ratio):
        return
    ratios = running.outcome.ratios
    ratios[kind] = max(ratios.get(kind, 0.0), float(ratio.max()))
    if not ratio.max() <= 1.0 + ROUNDING:
        k, joint = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
        first = int(np.flatnonzero(ratio.max(axis=1) > 1.0)[0])
        text = (
            f"{ratio[k, joint]:.4f} of the bound: {values[k, joint]:.6g} {unit} at joint {joint + 1}; "
            f"from {(offset + first) * running.arm.period:.3f} s on"
        )
        _complain(running, kind, offset + int(k), text)


def _note_margin(running: Running, kind: str, values: Array, tell: Callable[[int], str], where: Array | None = None):
    _keep_smallest(running.outcome.margins, kind, float(values.min()))
    if values.min() < 0.0:
        k = int(values.argmin())
        _complain(running, kind, k if where is None else int(where[k]), f"{values[k]:.6g} m or rad, {tell(k)}")


def _keep_smallest(margins: dict[str, float], kind: str, value: float) -> None:
    margins[kind] = min(margins.get(kind, np.inf), value)


def _complain(running: Running, kind: str, cycle: int, text: str) -> None:
    mode, plan = LoopMode(running.log.mode[cycle]).name, running.log.plan[cycle][:12]
    where = f"{cycle * running.arm.period:.3f} s, {mode} {plan}"
    running.outcome.complain(kind, f"{text} ({where})")
