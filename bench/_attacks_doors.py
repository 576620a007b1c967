"""Trials of issue 42, point 6: forged estimates, smaller scenes, and the key of the suite in processes without need.

Each trial goes the way of a request through planner and driver, without ROS between them: what the safe planner signs,
what the driver takes for the model of its controller, and what its gate lets pass. A trial fails where an attack gets a
motion executed, or the driver to take a model.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from sysid_msgs.msg import DriverStatus, ParameterEstimate
from sysid_msgs.srv import ApplyEstimate, ExecuteTrajectory, PlanTo
from sysid_ros.adapters.arm_driver.commands import ArmCommands
from sysid_ros.adapters.arm_driver.outputs import PayloadEpochs
from sysid_ros.adapters.arm_driver.parameters import ArmDriverParameters
from sysid_ros.adapters.safe_planner.scene import SceneStore
from sysid_ros.adapters.safe_planner.service import PlanRequests, SafePlannerParameters
from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.certification.authentication import KEY_FILE_VARIABLE, AuthenticationKey
from sysid_ros.core.certification.stop_model import VerifierSettings
from sysid_ros.core.certification.verify import Beginning, make_certificate, verify
from sysid_ros.core.collision.scene import Obstacle, Scene
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate as Estimate
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.regressors.rest_torque import RestTorque
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.child import ChildProcess
from sysid_ros.drivers.gate import Conditions, OfferedPlan
from sysid_ros.drivers.loop_types import LoopModel
from sysid_ros.drivers.mujoco.simulation import load_payload
from sysid_ros.drivers.proof import ProofServer
from sysid_ros.processes import IDENTIFY
from sysid_ros.ros.conversions.authentication import sign
from sysid_ros.ros.conversions.estimate import estimate_to_message
from sysid_ros.ros.conversions.plans import scene_to_message

MODEL = "kinova_gen3_2f85"
NOW, EPOCH = 1000.0, 3
TABLE = Obstacle("table", np.array([0.6, 0.0, 0.1]), np.array([0.1, 0.3, 0.1]))
"""What the configuration of these trials says is always there."""
KEY, OTHER_KEY = AuthenticationKey(b"k" * 32), AuthenticationKey(b"x" * 32)


class FakeLoop:
    """The torque loop as far as a model goes."""

    def __init__(self, robot: Any, law: Any):
        self._robot, self._law = robot, law
        self.given = LoopModel.nominal(robot)

    def set_model(self, model: LoopModel, is_reset: bool = False) -> None:
        """Take a model, as the loop does."""
        model.require_fits(self._robot)
        if not is_reset:
            model.require_inside(self.given, self._robot)
        self.given = model

    def brake(self, *_: object) -> None:
        """Brake: nothing moves here."""

    def status(self) -> SimpleNamespace:
        """Return what the adapters read of it."""
        return SimpleNamespace(cycles=7, law=self._law, stamp_ns=round(1e9 * NOW), model_box_hash="")


class Rig:
    """Planner and driver of one suite, whose arm holds 1.81 kg; both are configured for a ground and a table.

    Args:
        key: Key of the suite; None without one.
    """

    def __init__(self, key: AuthenticationKey | None = KEY):
        self.robot = robot = load_robot(MODEL)
        self.held = load_payload(robot, "dumbbell_4lb")
        self.key = key
        fixed = Scene((TABLE,), ground_height=0.0, clearance=0.01)
        values = SimpleNamespace(fixed_scene=lambda: fixed, allow_unauthenticated=True, commander_timeout=0.5)
        planner = SafePlannerParameters()
        self.store = SceneStore(robot, fixed)
        self.requests = PlanRequests(robot, self.store, planner, key)
        loop = FakeLoop(robot, self.requests.control.law)
        epochs = PayloadEpochs()
        epochs._first_epoch = EPOCH
        self.prover = ProofServer(channel=None)  # type: ignore[arg-type]
        self.prover.load(MODEL)
        log = SimpleNamespace(**dict.fromkeys(("error", "warning", "info", "fatal", "debug"), lambda *_, **__: None))
        node = SimpleNamespace(get_logger=lambda: log)
        arm = SimpleNamespace(robot=robot, loop=loop, epochs=epochs, key=key, values=values, prover=self.prover)
        outputs = SimpleNamespace(read_status=loop.status)
        self.loop, self.epochs = loop, epochs
        self.commands = ArmCommands(node, arm, outputs)  # type: ignore[arg-type]
        self.session = self.commands.authenticator.session
        self.say_status()
        self.commands.on_scene(scene_to_message(self.store.scene, source="planner"))

    def say_status(self, **changes: Any) -> None:
        """Let the planner hear the status of the driver."""
        status = DriverStatus(session=self.session, payload_epoch=self.epochs.present, mode=DriverStatus.MODE_HOLD)
        status.header.stamp.sec = round(NOW)
        for name, value in changes.items():
            setattr(status, name, value)
        self.requests.on_driver_status(status)

    def estimate(self, mass: float, width: float = 0.02, key: AuthenticationKey | None = KEY) -> ParameterEstimate:
        """Return an estimate of a payload of this mass [kg], as the estimator would publish it."""
        robot, guess = self.robot, self.held * (mass / self.held[0])
        prior = robot.payload_prior.box
        box = Box.around(guess, width * prior.radius).intersect(prior)
        assert box is not None
        rest = RestTorque(tuple(robot.joint_names), robot.home, Box.around(np.zeros(robot.n), np.full(robot.n, 200.0)))
        found = Estimate(
            values=np.clip(guess, box.lower, box.upper), lower=box.lower, upper=box.upper, method="set_membership",
            guarantee="", is_guaranteed=True, is_consistent=True, alarm=None, target="payload",
            frame=robot.joint_names[-1], number_of_windows=20, data_seconds=5.0, condition_number=10.0, rest=rest,
            origin=(self.session, self.epochs.present),
        )  # fmt: skip
        message = estimate_to_message(found, round(1e9 * NOW))
        if key is not None:
            sign(message, key)
        return message

    def is_planned(self, estimate: ParameterEstimate) -> bool:
        """Return whether ``~/plan_to`` goes on to plan with an estimate."""
        goal = (self.robot.home + 0.1).tolist()
        home, names = self.robot.home.tolist(), list(self.robot.joint_names)
        request = PlanTo.Request(joint_names=names, start_position=home, goal_position=goal, estimate=estimate)
        try:
            self.requests._assumptions_of(request)
        except (SysidError, ValueError):
            return False
        return True

    def is_taken(self, estimate: ParameterEstimate) -> bool:
        """Return whether ``~/set_model``, or a take-over with ``~/execute``, takes an estimate."""
        self.loop.given = LoopModel.nominal(self.robot)
        answer = self.commands.set_model(ApplyEstimate.Request(estimate=estimate), ApplyEstimate.Response())
        try:
            in_motion = self.commands._model_of(ExecuteTrajectory.Request(estimate=estimate)) is not None
        except (SysidError, ValueError):
            in_motion = False
        return bool(answer.success) or in_motion

    def certify(self, path: BezierTrajectory, scene: Scene) -> OfferedPlan:
        """Return a plan with a certificate for a scene that the planner itself has signed."""
        assumptions = Assumptions.of_payload(self.robot, scene=scene, control_law=self.requests.control)
        bound = assumptions.bound(path)
        found = verify(assumptions, path, bound, VerifierSettings())
        beginning = Beginning(rest_before=bound.settling_time, issued_at=NOW - 1.0)
        certificate = make_certificate(assumptions, path, bound, found, beginning)
        return OfferedPlan(path, certificate, KEY.authenticate(certificate, self.session))

    def why_refused(self, plan: OfferedPlan, scene: Scene) -> str | None:
        """Say a scene to the driver, and offer a plan to it; return why it refuses, None where it does not."""
        self.commands.on_scene(scene_to_message(scene, source="planner"))
        self.loop.given = LoopModel.nominal(self.robot)
        now = self.commands.scene._spoke
        try:
            self.commands._gate.admit(plan, Conditions(self.loop.given, self.requests.control.law, NOW, now))
        except SysidError as error:
            return str(error)
        return None


# 6a: estimates


def _changed(**fields: Any) -> Any:
    def change(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
        for name, value in fields.items():
            setattr(message, name, value(message, rng) if callable(value) else value)
        return message

    return change


def _one(name: str, value: Any) -> Any:
    """Change one number of an array by a rule."""

    def rule(message: ParameterEstimate, rng: np.random.Generator) -> list[float]:
        values = [float(one) for one in getattr(message, name)]
        index = int(rng.integers(len(values)))
        values[index] = value(values[index], rng)
        return values

    return _changed(**{name: rule})


def _swapped(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
    i, j = rng.choice(10, 2, replace=False)
    names = list(message.names)
    names[i], names[j] = names[j], names[i]
    message.names = names
    return message


def _light(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
    return rig.estimate(0.05, key=None)


def _light_with_code(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
    forged = rig.estimate(0.05, key=None)
    forged.authentication = message.authentication
    return forged


def _other_key(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
    return rig.estimate(0.05, key=OTHER_KEY)


def _signed_with(**fields: Any) -> Any:
    """An authentic one of another time: the suite itself has signed it."""

    def change(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
        old = rig.estimate(0.05, key=None)
        for name, value in fields.items():
            setattr(old, name, value)
        sign(old, KEY)
        return old

    return change


def _after_reset(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
    """Authentic of the payload before: then the driver was given its prior back, and 1.81 kg were gripped."""
    old = rig.estimate(0.05)
    rig.commands.set_model(ApplyEstimate.Request(), ApplyEstimate.Response())
    rig.say_status()
    return old


def _after_announcement(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
    old = rig.estimate(0.05)
    rig.epochs.begin(9)
    rig.say_status()
    return old


def _after_restart(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
    """Authentic of the session before: the driver was deactivated and activated again."""
    old = rig.estimate(0.05)
    rig.session = rig.commands.authenticator.session = rng.bytes(16).hex()
    rig.say_status()
    return old


def _code_of(length: int) -> Any:
    def change(rig: Rig, message: ParameterEstimate, rng: np.random.Generator) -> ParameterEstimate:
        forged = rig.estimate(0.05)
        forged.authentication = list(forged.authentication)[:length]
        return forged

    return change


ESTIMATES = {
    "forged estimate of 0.05 kg where the arm holds 1.81 kg, consistent in all fields": _light,
    "the same with the code of an authentic one": _light_with_code,
    "the same, signed with another key": _other_key,
    "a code of 31 bytes": _code_of(31),
    "a code of one byte": _code_of(1),
    "one upper bound lowered": _one("upper", lambda x, rng: x - abs(x) * rng.uniform(1e-12, 0.5) - 1e-12),
    "one lower bound raised": _one("lower", lambda x, rng: x + abs(x) * rng.uniform(1e-12, 0.5) + 1e-12),
    "a bound that is not a number": _one("upper", lambda x, rng: float("nan")),
    "an infinite bound": _one("lower", lambda x, rng: float("-inf")),
    "two parameters swapped": _swapped,
    "strip of the weighed torque narrowed": _one("rest_torque_upper", lambda x, rng: x * rng.uniform(0.01, 0.99)),
    "posture of the weighing moved": _one("rest_posture", lambda x, rng: x + rng.uniform(0.01, 0.5)),
    "strip cut off": _changed(rest_joint_names=[], rest_posture=[], rest_torque_lower=[], rest_torque_upper=[]),
    "of another body, called the payload": _signed_with(target="end_effector"),
    "target changed": _changed(target="end_effector"),
    "stamp changed": _changed(header=lambda m, rng: _later(m)),
    "gripper changed": _changed(gripper="closed"),
    "payload number changed": _changed(payload_epoch=lambda m, rng: m.payload_epoch + 1),
    "session changed": _changed(session="f" * 32),
    "authentic, of an earlier session": _signed_with(session="0" * 32),
    "authentic, of no session": _signed_with(session=""),
    "authentic, of an earlier payload": _signed_with(payload_epoch=EPOCH - 1),
    "authentic, of a payload to come": _signed_with(payload_epoch=EPOCH + 1),
    "authentic, replayed after the prior was given back": _after_reset,
    "authentic, replayed after an announced change": _after_announcement,
    "authentic, replayed after the driver was activated again": _after_restart,
}
"""Attacks by name: each makes an estimate of an authentic one."""


def _later(message: ParameterEstimate) -> Any:
    header = copy.deepcopy(message.header)
    header.stamp.sec += 1
    return header


def attack_estimates(trials: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Send forged estimates to planner and driver."""
    rows, rig = [], Rig()
    for name, change in ESTIMATES.items():
        failed = planned = 0
        for _ in range(trials):
            rig.epochs._first_epoch, rig.epochs._starts = EPOCH, [0]
            rig.say_status()
            honest = rig.estimate(float(rng.uniform(1.7, 1.9)))
            assert rig.is_planned(honest) and rig.is_taken(honest), "an honest estimate is refused"
            forged = change(rig, honest, rng)
            planned += rig.is_planned(forged)
            failed += rig.is_taken(forged)
        note = f"~/plan_to planned with it {planned} times"
        rows.append({"point": "6a", "attack": name, "trials": trials, "failed": failed, "note": note})
    return rows


# 6b: scenes and transitions


SCENES = {
    "ground removed (has_ground)": lambda scene: replace(scene, ground_height=None),
    "ground lowered by 1 cm": lambda scene: replace(scene, ground_height=-0.01),
    "ground lowered by 1 nm": lambda scene: replace(scene, ground_height=-1e-9),
    "list of obstacles emptied": lambda scene: replace(scene, obstacles=()),
    "obstacle made smaller by 1 mm": lambda scene: replace(
        scene, obstacles=(replace(TABLE, half_extents=TABLE.half_extents - 1e-3),)
    ),
    "obstacle moved by 1 cm": lambda scene: replace(scene, obstacles=(replace(TABLE, center=TABLE.center + 0.01),)),
    "obstacle of the same name elsewhere": lambda scene: replace(
        scene, obstacles=(replace(TABLE, center=np.array([5.0, 5.0, 5.0])),)
    ),
    "clearance 0": lambda scene: replace(scene, clearance=0.0),
    "clearance 1 mm smaller": lambda scene: replace(scene, clearance=scene.clearance - 1e-3),
    "nothing is carried, says the scene": lambda scene: replace(scene, payload_spheres=()),
}
"""Scenes that contain less than the configuration says."""


def attack_scenes(trials: int, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Offer signed plans for scenes that contain less than the driver demands."""
    rows, rig = [], Rig()
    required, home, rest = rig.store.scene, rig.robot.home, np.zeros(rig.robot.n)
    for name, change in SCENES.items():
        failed, note = 0, ""
        smaller = change(required)
        for _ in range(trials):
            # A short motion is proven in any of these scenes: it is the scene that must be refused.
            path = BezierTrajectory(home, rest, rest, home + rng.uniform(-0.05, 0.05, rig.robot.n), 3.0)
            refusal = rig.why_refused(rig.certify(path, smaller), smaller)
            failed += refusal is None
            note = refusal or "accepted"
            assert rig.why_refused(rig.certify(path, required), required) is None, "an honest plan is refused"
        rows.append({"point": "6b", "attack": name, "trials": trials, "failed": failed, "note": note})
    writable = [
        f"{kind.__name__}.{name}"
        for kind in (SafePlannerParameters, ArmDriverParameters)
        for name, one in _declared(kind).items()
        if not one.read_only and not name.startswith("fault_")
    ]
    count = sum(len(_declared(kind)) for kind in (SafePlannerParameters, ArmDriverParameters))
    row = {"point": "6b", "attack": "a parameter of planner or driver changed after the start, active or not"}
    return [*rows, {**row, "trials": count, "failed": len(writable), "note": ", ".join(writable)}]


def _declared(kind: Any) -> dict[str, Any]:
    from sysid_ros.ros.parameters import declared

    return declared(kind)


# 6d: the key


class _Idle(ChildProcess):
    """A child that waits, for its environment to be read."""

    name, module = "idle", "http.server"


def attack_key(trials: int) -> list[dict[str, Any]]:
    """Read the environments of children of a driver that has a key, and which processes of the suite get one."""
    os.environ[KEY_FILE_VARIABLE] = "/nowhere/key"
    failed = 0
    try:
        for _ in range(trials):
            child = _Idle()
            child._spawn()
            try:
                with open(f"/proc/{child.pid}/environ", "rb") as file:
                    failed += KEY_FILE_VARIABLE.encode() in file.read()
            finally:
                child._end(kill_after=0.0)
    finally:
        del os.environ[KEY_FILE_VARIABLE]
    with_key = {one.executable for one in IDENTIFY if one.has_key}
    extra = with_key - {"arm_driver", "safe_planner", "estimator", "identification"}
    return [
        {"point": "6d", "attack": "the key's path in /proc/PID/environ of children of the driver", "trials": trials,
         "failed": failed, "note": "torque loop and proof"},
        {"point": "6d", "attack": "a process of the suite that gets the key and neither signs nor checks", "failed":
         len(extra), "trials": len(IDENTIFY), "note": ", ".join(sorted(with_key)) + " have it"},
    ]  # fmt: skip


def run(trials: int) -> list[dict[str, Any]]:
    """Run all of them; returns a row for each attack."""
    rng = np.random.default_rng(42)
    rows = attack_estimates(trials, rng)
    return [*rows, *attack_scenes(max(1, trials // 10), rng), *attack_key(max(1, trials // 10))]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=20)
    for row in run(parser.parse_args().trials):
        sys.stdout.write(json.dumps(row) + "\n")
