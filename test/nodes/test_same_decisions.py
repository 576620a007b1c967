"""The procedure over topics and services and the one in lock-step give the controller the same models.

Both run with one policy. Here both run against the same simulated arm, with the same script of estimates, and all that
planner and controller are given is compared.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from doubles import make_estimate
from std_msgs.msg import Header

from sysid_msgs.msg import DriverStatus
from sysid_ros.adapters.identification import arm as arm_module
from sysid_ros.adapters.identification import session as ports
from sysid_ros.adapters.identification.arm import RosArm
from sysid_ros.adapters.identification.monitor import PlanProgress, Records
from sysid_ros.adapters.identification.session import IdentificationParameters, RosEstimates, RosPlanner, Session, Suite
from sysid_ros.core.certification.assumptions import box_hash
from sysid_ros.core.certification.plan import CertifiedPlan
from sysid_ros.core.common.box import Box
from sysid_ros.core.control.settings import RobustSettings
from sysid_ros.core.estimation.parameters.estimate import Alarm, AlarmCode, Quantity
from sysid_ros.core.procedure import (
    IdentificationErrorCode,
    IdentificationFailed,
    IdentificationSettings,
    ModelPolicy,
    Ports,
    run_identification,
)
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.loop_types import LoopMode, LoopSample
from sysid_ros.emulators.lockstep import LockstepBackend, LockstepSettings
from sysid_ros.ros.conversions.common import stamp_to_message
from sysid_ros.ros.conversions.estimate import estimate_from_message

DURATION, HANDOVER, ESTIMATE_PERIOD, PERIOD = 3.0, 1.5, 0.5, 0.01
SETTINGS = IdentificationSettings(max_motion_time=7.5, shrink_threshold=0.0)


def estimate_around(robot, value, share, **changes):
    """Intervals of a share of the prior's around a value, cut at the prior."""
    box = robot.payload_prior.box
    lower, upper = (np.clip(value + sign * share * box.radius, box.lower, box.upper) for sign in (-1.0, 1.0))
    given = {"values": np.clip(value, lower, upper), "lower": lower, "upper": upper, "is_consistent": True} | changes
    alarm = None if given["is_consistent"] else Alarm(AlarmCode.JOINTLY_INCONSISTENT, "no payload agrees with the data")
    return make_estimate(**given, alarm=alarm, narrower=frozenset(Quantity))


SCRIPTS = {
    "shrinking": lambda time: (0.0, 0.5 / (1.0 + time), True),
    "inconsistent when weighed": lambda time: (0.0, 0.5, time < 0.9),
    "inconsistent in motion": lambda time: (0.0, 0.5 / (1.0 + time), time < 3.9),
    "beside the model in use": lambda time: (0.0 if time < 3.9 else 0.6, 0.5 / (1.0 + time), True),
    "beside it at the end": lambda time: (0.0 if time < 8.8 else 0.6, 0.5 / (1.0 + time), True),
}
"""By time [s]: how far the middle is from the nominal payload, and radius, as shares of the prior's; consistency."""


class World:
    """One arm that follows its plans, and estimates by a script; notes what planner and controller are given."""

    def __init__(self, robot, script):
        self.robot, self.time, self.decisions = robot, 0.0, []
        self.box, self._script, self._published = robot.payload_prior.box, script, 0.0
        self._chain, self._plans = [], 0  # (when it begins [s], plan)

    def note(self, kind, box=None, nominal=()):
        model = () if box is None else (tuple(box.lower), tuple(box.upper), tuple(nominal))
        self.decisions.append((kind, model))
        if kind == "set model":
            self.box = box

    def advance(self, duration):
        self.time += duration
        while self.time >= self._published + ESTIMATE_PERIOD - 1e-9:
            self._published += ESTIMATE_PERIOD

    def publish(self):
        self._published = self.time

    @property
    def estimate(self):
        if not self._published:
            return None
        # What is published at nearly the same time is the same.
        middle, share, is_consistent = self._script(round(2.0 * self._published) / 2.0)
        value = self.robot.payload_prior.nominal + middle * self.robot.payload_prior.box.radius
        nothing = {} if is_consistent else {name: np.full(10, np.nan) for name in ("values", "lower", "upper")}
        return estimate_around(self.robot, value, share, is_consistent=is_consistent, **nothing)

    def plan(self, predecessor):
        self._plans += 1
        home, still = self.robot.home, np.zeros(self.robot.n)
        certificate = SimpleNamespace(
            plan_id=f"plan {self._plans}", predecessor=predecessor, takeover_time=HANDOVER if predecessor else 0.0,
            rest_before=0.0, expires_at=np.inf, box_hash=box_hash(self.robot.theta_box, self.box),
        )  # fmt: skip
        path = BezierTrajectory(home, still, still, home + 0.01 * self._plans, DURATION)
        return CertifiedPlan(
            path, certificate, (), None, self.robot.name, HANDOVER, np.eye(10), 10.0, bound=SimpleNamespace()
        )

    def execute(self, plan):
        begin = self.time if plan.predecessor is None else self._chain[-1][0] + plan.takeover_time
        self._chain = [] if plan.predecessor is None else self._chain
        self._chain.append((begin, plan))

    def brake(self):
        self._chain = []

    @property
    def followed(self):
        """The plan that is followed and the time since its begin [s]; None at rest."""
        begun = [(self.time - begin, plan) for begin, plan in self._chain if begin <= self.time + 1e-9]
        return (begun[-1][1], begun[-1][0]) if begun and begun[-1][0] < DURATION else None


# In lock-step


class FakeLoop:
    """What the lock-step backend asks of a loop."""

    def __init__(self, world):
        self.world, self.robot, self.arm = world, world.robot, SimpleNamespace(period=PERIOD)
        policy = ModelPolicy(world.robot)
        self.model = SimpleNamespace(payload_box=policy.in_use.box, payload=policy.in_use.nominal)
        self._cycles = 0

    @property
    def now_ns(self):
        return round(1e9 * self.world.time)

    @property
    def mode(self):
        return LoopMode.HOLD if self.world.followed is None else LoopMode.TRACK

    @property
    def is_at_rest(self):
        return self.world.followed is None

    def status(self):
        followed = self.world.followed
        return SimpleNamespace(
            mode=self.mode, is_taking_over=False, reference=self.robot.home, rested=10.0, law=RobustSettings().law,
            is_moving=followed is not None, has_failed=False, reason="",
            plan_id=followed[0].plan_id if followed else None, progress=followed[1] / DURATION if followed else 0.0,
        )  # fmt: skip

    def heartbeat(self):
        pass

    def step(self):
        self.world.advance(PERIOD)
        self._cycles += 1
        zeros = np.zeros(self.robot.n)
        return LoopSample(self._cycles, self.now_ns, True, *([zeros] * 7), self.mode)

    def set_model(self, model, is_reset):
        if is_reset:
            self.world.note("reset")
        else:
            self.world.note("set model", model.payload_box, model.payload)

    def execute(self, trajectory, certificate, model):
        plan = self.world.plans[certificate.plan_id]
        self.world.note(f"execute {certificate.plan_id}", model and model.payload_box, model.payload if model else ())
        self.world.execute(plan)

    def brake(self, reason):
        self.world.brake()


def lockstep_ports(world):
    world.plans = {}

    def plan(request, now):
        world.note("plan", request.assumptions.boxes[1], request.assumptions.nominal)
        made = world.plan(request.predecessor and request.predecessor.plan_id)
        world.plans[made.plan_id] = made
        return made

    planner = SimpleNamespace(plan=plan, settings=SimpleNamespace(planning_time=HANDOVER))
    estimator = SimpleNamespace(
        reset=lambda reason: "", add=lambda block: [], estimate=lambda: world.estimate, information=lambda: np.eye(10)
    )
    settings = LockstepSettings(estimate_period=ESTIMATE_PERIOD, batch=10)
    backend = LockstepBackend(FakeLoop(world), planner, estimator, settings=settings)
    backend._guard = SimpleNamespace(
        admit=lambda certificate, now: None, find_conflict=lambda source, now: None, update=lambda scene: None
    )
    catch_up = backend.catch_up
    backend.catch_up = lambda: (world.publish(), catch_up())
    return backend.ports


# Over topics and services


class FakeMonitor:
    """What the node would hear of the world."""

    def __init__(self, world):
        self._world, self.records, self.followed, self.sample_fault = world, Records(), {}, None
        self.check_times, self.peers = (
            [],
            SimpleNamespace(find_gone=lambda *names, since: None, is_gone=lambda name: False),
        )

    @property
    def status(self):
        world, followed = self._world, self._world.followed
        if followed is not None:
            self.followed[followed[0].plan_id] = PlanProgress(self.sample_stamp_ns, followed[1] / DURATION)
        return SimpleNamespace(
            mode=DriverStatus.MODE_HOLD if followed is None else DriverStatus.MODE_TRACK, code=DriverStatus.CODE_OK,
            header=Header(stamp=stamp_to_message(self.sample_stamp_ns)), text="", is_taking_over=False, rested=10.0,
            plan_id=followed[0].plan_id if followed else "",
            progress=followed[1] / DURATION if followed else 0.0, joint_names=list(world.robot.joint_names),
            reference_position=world.robot.home.tolist(), model_box_hash=box_hash(world.robot.theta_box, world.box),
            serial_number="",
        )  # fmt: skip

    status_time = sample_time = property(lambda self: self._world.time)
    sample_stamp_ns = property(lambda self: round(1e9 * self._world.time))
    estimate = property(lambda self: self._world.estimate)
    information = property(lambda self: np.eye(10))
    estimate_stamp_ns = property(lambda self: round(1e9 * self._world._published))
    is_moving = property(lambda self: self._world.followed is not None)
    source_conflict = estimate_fault = None
    sample_epoch = 0

    def forget_plan(self, plan_id):
        self.followed.pop(plan_id, None)

    def forget_estimates(self, until_ns, stated, tare):
        pass


class FakeSession(Session):
    """The suite, answered by the world."""

    def __init__(self, world):
        self._world = world
        logger = SimpleNamespace(warning=print, error=print)
        clients = SimpleNamespace(
            plan_next="plan", cancel_next="cancel", execute="execute", brake="brake", set_model="set", reset="reset"
        )
        node = SimpleNamespace(get_logger=lambda: logger)
        options = IdentificationParameters(procedure=SETTINGS, service_timeout=1.0, planning_timeout=1.0)
        super().__init__(Suite(node, world.robot, FakeMonitor(world), clients), options, lambda: False)

    def sleep(self, duration, *needed):
        self._world.advance(duration)

    def wait_until(self, condition, seconds=None):
        if not condition():
            self._world.publish()
        return condition()

    def call(self, client, request, code, seconds=None, is_cancelled=None):
        return self.answer(None, client, request)

    def answer(self, node, client, request, *_):
        return getattr(self, f"_{client}")(request)

    def _model_of(self, request):
        estimate = estimate_from_message(request.estimate) if hasattr(request, "estimate") else None
        return None if estimate is None else estimate.box

    def _set(self, request):
        box = self._model_of(request)
        if box is None:
            self._world.note("reset")
            self.monitor.sample_epoch += 1
        else:
            self._world.note("set model", box, request.nominal_payload)
        return SimpleNamespace(success=True, payload_epoch=self.monitor.sample_epoch)

    def _plan(self, request):
        box = self._model_of(request) or self._world.robot.payload_prior.box
        self._world.note("plan", box, request.nominal_payload)
        return SimpleNamespace(
            success=True, plan=self._world.plan(request.predecessor or None), handover_time=HANDOVER,
            information_gained=np.eye(10).reshape(100), condition_number=10.0,
        )  # fmt: skip

    def _execute(self, request):
        self._world.note(
            f"execute {request.plan.plan_id}", self._model_of(request), getattr(request, "nominal_payload", ())
        )
        self._world.execute(request.plan)
        return SimpleNamespace(accepted=True, proof_time=0.0)

    def _brake(self, _):
        self._world.brake()
        self._world.advance(0.1)

    def _reset(self, _):
        return SimpleNamespace(success=True, until=0, gripper="", tare="")


def ros_ports(world, monkeypatch):
    session = FakeSession(world)
    clock = SimpleNamespace(monotonic=lambda: world.time, time_ns=lambda: 0, sleep=world.advance)
    for module in (arm_module, ports):
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "call_service", session.answer)
    monkeypatch.setattr(arm_module, "ExecuteTrajectory", SimpleNamespace(Request=SimpleNamespace))
    monkeypatch.setattr(arm_module, "certified_plan_to_message", lambda plan, *_: plan)
    monkeypatch.setattr(arm_module, "wait_until", lambda condition, seconds: (world.advance(0.1), condition())[1])
    monkeypatch.setattr(ports, "certified_plan_from_message", lambda message, names: message)
    return Ports(RosPlanner(session), RosArm(session), RosEstimates(session))


def run(world, ports):
    """Return how it ended."""
    try:
        run_identification(ports, ModelPolicy(world.robot), SETTINGS)
    except IdentificationFailed as failure:
        assert failure.stop_unconfirmed is None
        return failure.code
    return IdentificationErrorCode.NONE


@pytest.mark.parametrize("name", SCRIPTS)
def test_both_give_the_same_models_for_the_same_estimates(robot, monkeypatch, name):
    worlds = [World(robot, SCRIPTS[name]) for _ in range(2)]
    ends = [run(worlds[0], lockstep_ports(worlds[0])), run(worlds[1], ros_ports(worlds[1], monkeypatch))]
    assert worlds[0].decisions == worlds[1].decisions
    assert ends[0] is ends[1]
    kinds, given = zip(*worlds[0].decisions, strict=True)
    assert kinds[0] == "reset"
    if name == "shrinking":
        assert ends[0] is IdentificationErrorCode.NONE
        assert kinds == (
            "reset", "set model", "plan", "plan", "execute plan 1", "execute plan 2", "plan", "execute plan 3", "plan",
            "execute plan 4", "set model",
        )  # fmt: skip
        assert len(set(given)) == 5  # none, at rest (also for plan 2), for plans 3 and 4, and in the end
    else:
        assert ends[0] is IdentificationErrorCode.INCONSISTENT
        # All that was ever given allows for the payload that the data speak of while they are consistent.
        assert all(not model or Box(*map(np.array, model[:2])).contains(robot.payload_prior.nominal) for model in given)
    assert all(worlds[k].followed is None for k in range(2))
