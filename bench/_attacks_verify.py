"""Attacks on certificates, deflections of elastic gears and FRI: how often each still succeeds.

Run: ``python bench/_attacks_verify.py [--trials 80]``; a JSON line for each kind of attack. Certificates are forged
field by field (``test/drivers/forged_certificates.py``), and in boxes and scene with the hash made to fit.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parent.parent / "test" / "drivers"
sys.path.insert(0, str(TESTS))
from forged_certificates import FIELDS, NOW  # noqa: E402

from sysid_ros.cli.verify import verify_plans  # noqa: E402
from sysid_ros.core.certification.assumptions import Assumptions, box_hash  # noqa: E402
from sysid_ros.core.certification.certificate import CertificateMismatch  # noqa: E402
from sysid_ros.core.certification.plan import CertifiedPlan  # noqa: E402
from sysid_ros.core.certification.stop_model import VerifierSettings  # noqa: E402
from sysid_ros.core.certification.verify import Beginning, make_certificate, verify  # noqa: E402
from sysid_ros.core.collision.scene import Scene  # noqa: E402
from sysid_ros.core.common.box import Box  # noqa: E402
from sysid_ros.core.control import build_controller  # noqa: E402
from sysid_ros.core.control.model import ControlModel  # noqa: E402
from sysid_ros.core.control.settings import ControlLaw  # noqa: E402
from sysid_ros.core.model.loader import load_robot  # noqa: E402
from sysid_ros.core.model.robot import RobotModel  # noqa: E402
from sysid_ros.core.trajectories.families import BezierTrajectory  # noqa: E402
from sysid_ros.drivers.arm import InjectedFaults  # noqa: E402
from sysid_ros.drivers.kuka_fri.codec import FriCodec  # noqa: E402
from sysid_ros.drivers.kuka_fri.link import FriSession  # noqa: E402
from sysid_ros.drivers.kuka_fri.messages import (  # noqa: E402
    CommandMode,
    SessionState,
)
from sysid_ros.drivers.modes import FriVersion, Noise  # noqa: E402
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings  # noqa: E402
from sysid_ros.drivers.mujoco.simulation import load_payload  # noqa: E402

ROBOT = "kinova_gen3_2f85"
ELASTIC = ("kinova_gen3", "kuka_lbr_iiwa14", "kuka_lbr_med7")
NOT_SEEN_LATER = ("expired", "not issued yet", "half a share", "a second of rest more")
"""What only the driver can refuse, by the time of its clock."""


def honest_plan(robot: RobotModel) -> CertifiedPlan:
    """A plan for a weighed payload, as the safe planner makes it."""
    prior, held = robot.payload_prior.box, load_payload(robot, "dumbbell_4lb")
    lower, upper = (np.clip(held + sign * 0.02 * prior.radius, prior.lower, prior.upper) for sign in (-1.0, 1.0))
    assumptions = Assumptions.of_payload(robot, Box(lower, upper), held, held, Scene(ground_height=-0.05))
    rest = np.zeros(robot.n)
    path = BezierTrajectory(robot.home, rest, rest, robot.home + 0.1, 3.0)
    bound = assumptions.bound(path)
    beginning = Beginning(rest_before=bound.settling_time, issued_at=NOW - 1.0)
    found = verify(assumptions, path, bound, VerifierSettings())
    certificate = make_certificate(assumptions, path, bound, found, beginning)
    return CertifiedPlan(path, certificate, assumptions.boxes, assumptions.scene, robot.name)


def with_boxes(plan: CertifiedPlan, arm: Box, payload: Box) -> CertifiedPlan:
    """The plan with other boxes and the hash that belongs to them."""
    certificate = replace(plan.certificate, box_hash=box_hash(arm, payload))
    return replace(plan, boxes=(arm, payload), certificate=certificate)


def with_scene(plan: CertifiedPlan, scene: Scene) -> CertifiedPlan:
    """The plan with another scene and the hash that belongs to it."""
    return replace(plan, scene=scene, certificate=replace(plan.certificate, scene_hash=scene.hash()))


def with_law(plan: CertifiedPlan, **changes: float) -> CertifiedPlan:
    """The plan under another control law."""
    law = plan.certificate.control_law
    settings = tuple({**dict(law.settings), **changes}.items())
    return replace(plan, certificate=replace(plan.certificate, control_law=ControlLaw(law.name, settings)))


def shrunk(box: Box, share: float) -> Box:
    """A box of the same centre."""
    return Box.around(box.center, share * box.radius)


def forged_plans(plan: CertifiedPlan) -> dict[str, CertifiedPlan | None]:
    """Forged plans by what is forged; None where no certificate can be made of it."""
    (arm, payload), nan, inf = plan.boxes, np.nan, np.inf
    fields = {name: change for name, (change, _, _) in FIELDS.items() if name not in NOT_SEEN_LATER}
    fields |= {
        "issued long ago, for ever": lambda one: {"issued_at": -inf, "expires_at": inf},
        "issued at no time": lambda one: {"issued_at": nan},
        "expires at no time": lambda one: {"expires_at": nan},
        "takes over at no time": lambda one: {"takeover_time": nan},
        "takes over at an infinite time": lambda one: {"takeover_time": inf},
        "an infinite torque fraction": lambda one: {"torque_fraction": inf},
        "an infinite brake time": lambda one: {"brake_time": inf},
        "a torque bound that is not a number": lambda one: {"torque_bound": np.full(one.torque_bound.size, nan)},
        "an infinite velocity bound": lambda one: {"velocity_bound": np.full(one.velocity_bound.size, inf)},
        "all margins -1": lambda one: {"margins": tuple(replace(m, value=-1.0) for m in one.margins)},
        "all margins infinite": lambda one: {"margins": tuple(replace(m, value=inf) for m in one.margins)},
        "a margin twice, once overstated": lambda one: {
            "margins": (replace(one.margins[0], value=9.0), *one.margins)
        },
        "proven throughout, bounds of nothing": lambda one: {
            "is_proven_throughout": True, "tracking_bound": 0.9 * one.tracking_bound,
        },
        "claims that all is well": lambda one: {"claims": "all is well"},
        "said to be proven throughout": lambda one: {"is_proven_throughout": True},
    }  # fmt: skip
    plans: dict[str, CertifiedPlan | None] = {}
    for name, change in fields.items():
        try:
            plans[name] = replace(plan, certificate=replace(plan.certificate, **change(plan.certificate)))
        except (CertificateMismatch, ValueError):
            plans[name] = None
    far = Scene(ground_height=-5.0)
    return plans | {
        "half an arm box": with_boxes(plan, shrunk(arm, 0.5), payload),
        "an arm known exactly": with_boxes(plan, shrunk(arm, 0.0), payload),
        "half a payload box": with_boxes(plan, arm, shrunk(payload, 0.5)),
        "a payload known exactly": with_boxes(plan, arm, shrunk(payload, 0.0)),
        "a box of nothing in the hand": with_boxes(plan, arm, Box(np.zeros(10), np.zeros(10))),
        "an empty scene": with_scene(plan, Scene()),
        "a scene without ground": with_scene(plan, replace(plan.scene, ground_height=None)),
        "a ground far below": with_scene(plan, far),
        "a payload without spheres": with_scene(plan, replace(plan.scene, payload_spheres=())),
        "no delay": with_law(plan, delay=0.0),
        "half the delay": with_law(plan, delay=5e-4),
        "a shorter period": with_law(plan, period=1e-4, delay=1e-4),
        "lower gains": with_law(plan, bandwidth=100.0),
        "an infinite gain": with_law(plan, position_gain=inf),
        "no friction speed": with_law(plan, friction_speed=1e-3),
        "a blend time of nothing": with_law(plan, blend_time=0.0),
    }


def accepted(plan: CertifiedPlan, forged: dict[str, CertifiedPlan | None], trials: int) -> list[str]:
    """Names of the forged plans that hold for the verifier and are named nowhere."""
    (sound,) = verify_plans([plan])
    if not sound.holds:
        raise RuntimeError(f"the honest plan does not hold: {sound.problems}")
    names = []
    for name, one in list(forged.items())[:trials]:
        if one is None:
            continue
        try:
            (found,) = verify_plans([one])
        except Exception as error:  # noqa: BLE001 - whatever it is, the plan was not accepted
            print(f"# {name}: {error!r}", file=sys.stderr)
            continue
        differs = getattr(found, "conditions", "") != getattr(sound, "conditions", "")
        if found.holds and not differs and getattr(found, "notes", ()) == getattr(sound, "notes", ()):
            names.append(name)
    return names


def wrench_answers() -> tuple[int, int]:
    """Answers in wrench mode to recorded messages, and those that do not carry the wrench that was asked for."""
    golden = json.loads((TESTS / "kuka_fri" / "data" / "fri_golden.json").read_text())["datagrams"]
    count = failed = 0
    push = np.array([1.0, -2.0, 3.0, 0.1, -0.2, 0.3])
    for entry in golden:
        if entry["direction"] != "monitoring" or entry["state"] != SessionState.COMMANDING_ACTIVE.name:
            continue
        codec = FriCodec(FriVersion(entry["version"]))
        message = codec.decode_monitoring(bytes.fromhex(entry["hex"]))._replace(
            command_mode=CommandMode.WRENCH, receive_multiplier=1
        )
        session = FriSession(codec)
        session.receive(codec.encode_monitoring(message))
        try:
            sent = codec.decode_command(session.answer(message.q, None, push) or b"").wrench
        except TypeError:  # it takes none
            sent = None
        count, failed = count + 1, failed + int(sent is None or not np.array_equal(sent, push))
    return count, failed


def fastest_deflection(robot: RobotModel, share: float, seed: int) -> np.ndarray:
    """Largest speed of the gears over the one counted on, (n,): a random motion, the stiffness at one of its ends."""
    payload, rng, still = load_payload(robot, "1.0"), np.random.default_rng(seed), np.zeros(robot.n)
    settings = MujocoSettings(seed=seed, noise=Noise.ADVERSARIAL, stiffness_share=share)
    arm, controller = (
        MujocoArm(robot, robot.theta_nominal, payload, settings=settings),
        build_controller("robust", robot),
    )
    arm.inject(InjectedFaults(command_delay=1))
    around = Box.around(payload, 0.1 * np.abs(payload) + 1e-3)
    model = ControlModel.of_boxes(robot, (robot.theta_box, around), payload)
    controller.set_model(model.theta, model.theta_box, model.payload, model.payload_box)
    arm.connect()
    way = rng.choice([-0.45, 0.45], robot.n) * np.minimum(1.0, robot.limits.v_max / 1.4)
    path, largest = BezierTrajectory(robot.home, still, still, robot.home + way, 1.5), np.zeros(robot.n)
    offset = arm.read().q - robot.home
    for cycle in range(1900):
        state, (q, v, a) = arm.read(), path.evaluate(min(max(cycle * 1e-3 - 0.2, 0.0), 1.5))
        torque = controller.compute(state.q, state.v, q + offset, v, a)
        arm.command(np.clip(torque, -robot.limits.tau_max, robot.limits.tau_max))
        np.maximum(largest, np.abs(arm.physics.deflection[1]), out=largest)
    return largest / robot.elasticity.deflection_rate


def run(trials: int) -> list[dict]:
    """Rows of the page of attacks and faults."""
    robot = load_robot(ROBOT)
    used = {
        (name, end, seed): fastest_deflection(load_robot(name, is_elastic=True), share, seed).max()
        for name in ELASTIC
        for end, share in (("softest", -1.0), ("stiffest", 1.0))
        for seed in range(max(1, trials // 50))
    }
    worst = {(name, end): max(used[key] for key in used if key[:2] == (name, end)) for name, end, _ in used}
    plan = honest_plan(robot)
    forged = forged_plans(plan)
    names = accepted(plan, forged, trials)
    count, failed = wrench_answers()
    return [
        {
            "point": "6f", "attack": "gears deflect faster than estimator and certificates count on",
            "trials": len(used), "failed": sum(bool(one > 1.0) for one in used.values()),
            "note": "largest share: " + ", ".join(f"{name} {end} {one:.2f}" for (name, end), one in worst.items()),
        },
        {
            "point": "6c", "attack": "sysid verify accepts a forged certificate without naming what is forged",
            "trials": min(trials, len(forged)), "failed": len(names), "note": ", ".join(names),
        },
        {
            "point": "7", "attack": "FRI answers in wrench mode without the wrench that was asked for",
            "trials": count, "failed": failed, "note": "recorded messages of COMMANDING_ACTIVE, the mode changed",
        },
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=200, help="forged certificates at most")
    for row in run(parser.parse_args().trials):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
