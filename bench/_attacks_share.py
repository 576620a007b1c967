"""Broken assumptions that leave data consistent: how often the result warns, and how often where all are kept.

``python bench/_attacks_share.py [--trials N] [--only WORDS] [--verbose]``. Arms are drawn in their box (every other one
at corners), payloads in the prior, errors of the sensors within their bounds; torques come from Pinocchio's RNEA. Rows
of broken assumptions count the trials in which the truth is outside the bounds and nothing was noticed, neither by
alarm nor by warning; rows of kept ones the trials with either. A gripper that the model lacks is payload.
"""

from __future__ import annotations

import os

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
from dataclasses import dataclass, replace
from datetime import date
from functools import cache

import numpy as np
import pinocchio as pin
from _containment import NOISES, random_motion
from _synthetic import TrueArm, measure

from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.bounds.agreement import Agreement, measure_agreement
from sysid_ros.core.estimation.calibration import (
    KnownLoad,
    LoadedRecording,
    Work,
    calibrate_arm,
    collect_rows,
    describe_doubts,
    empty_hand,
    find_share,
    join_recordings,
    reference_weight,
)
from sysid_ros.core.estimation.parameters.settings import EstimatorSettings
from sysid_ros.core.estimation.parameters.unknowns import describe_unknowns
from sysid_ros.core.estimation.streaming import StreamingEstimator
from sysid_ros.core.estimation.windows.rows import Rows, calibration_rows
from sysid_ros.core.estimation.windows.samples import SampleBlock
from sysid_ros.core.model.calibrated import apply_calibration
from sysid_ros.core.model.calibration import CalibrationRecord
from sysid_ros.core.model.inertia import from_com_form
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.sampling import sample_parameters, sample_payload
from sysid_ros.drivers.mujoco.simulation import SensorSimulation

PERIOD, MOTION = 0.001, 3.0
"""Of samples, and of the motions, which repeat [s]."""
SECONDS = 4.0
GEN3, LBR = "kinova_gen3_2f85", "kuka_lbr_iiwa7"
robot_of = cache(load_robot)


def record(
    robot: RobotModel,
    theta: np.ndarray,
    payload: np.ndarray,
    seed: int,
    lag: float = 0.0,
    tilt: float = 0.0,
    seconds: float = SECONDS,
    arm_seed: int | None = None,
) -> SampleBlock:
    """Samples of a random motion; the torques come late by a lag [s], gravity is tilted by an angle [rad].

    Sensors belong to an arm: their gains are constants.
    """
    of_sensors = seed if arm_seed is None else arm_seed
    rng, noise = np.random.default_rng((seed, 5)), NOISES[of_sensors % len(NOISES)]
    heading, true = rng.uniform(0.0, 2.0 * np.pi), robot
    if tilt:
        model, axis = robot.pin_model.copy(), np.array([np.cos(heading), np.sin(heading), 0.0])
        model.gravity = pin.Motion(pin.exp3(tilt * axis) @ model.gravity.linear, np.zeros(3))
        true = replace(robot, pin_model=model)
    plan = random_motion(robot, robot.home, rng, MOTION)
    times = PERIOD * np.arange(round(seconds / PERIOD) + 1)

    def motion(at: np.ndarray) -> tuple[np.ndarray, ...]:
        return plan.sample(np.mod(at, MOTION))

    arm = TrueArm(true, theta, payload, rng.uniform(-1.0, 1.0, robot.n), EstimatorSettings().stiction_speed)
    is_held = robot.sensors.effort_is_held
    tau = arm.mean_torque(motion, times - lag, PERIOD) if is_held else arm.torque(*motion(times - lag))
    return measure(SensorSimulation(robot.sensors, noise, of_sensors), times, *motion(times)[:2], tau)


@dataclass(frozen=True)
class Outcome:
    """What came out of a recording: whether it alarmed, whether the truth is inside, and what was measured."""

    alarm: bool
    is_inside: bool
    agreement: Agreement | None

    @property
    def is_noticed(self) -> bool:
        return self.alarm or (self.agreement is not None and bool(self.agreement.doubt))


def identify(robot: RobotModel, block: SampleBlock, payload: np.ndarray) -> Outcome:
    """The estimator and the check of its result, as sysid offline makes them."""
    settings, rows = EstimatorSettings(), list[Rows]()
    estimator = StreamingEstimator(robot, settings, on_rows=rows.append)
    estimator.add(block)
    estimator.complete()
    estimate = estimator.estimate()
    if not estimate.is_consistent:
        return Outcome(True, False, None)
    unknowns = describe_unknowns(robot, settings)
    known = calibration_rows(robot, unknowns, settings)
    parts = [*([] if known is None else [known]), *rows]
    agreement = measure_agreement(robot, unknowns, parts, Box(estimate.lower, estimate.upper))
    return Outcome(False, estimate.contains(payload), agreement)


def draw(robot: RobotModel, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng((seed, 77))
    return sample_parameters(robot, rng, corner=seed % 2 == 0), sample_payload(robot.payload_prior, rng)


def try_kept(name: str, seed: int) -> Outcome:
    robot = robot_of(name)
    theta, payload = draw(robot, seed)
    return identify(robot, record(robot, theta, payload, seed), payload)


def try_gripper(seed: int) -> Outcome:
    """A Gen3 with a 2F-85, identified with the model of the arm alone: the payload is the gripper and what it holds."""
    bare = robot_of("kinova_gen3")
    theta, _ = draw(robot_of(GEN3), seed)
    _, payload = draw(bare, seed)
    last = bare.inertial_slice(bare.n)
    return identify(
        bare, record(robot_of(GEN3), theta, payload, seed), theta[last] - bare.theta_nominal[last] + payload
    )


def try_lag(seed: int) -> Outcome:
    robot = robot_of(LBR)
    theta, payload = draw(robot, seed)
    return identify(robot, record(robot, theta, payload, seed, lag=0.02), payload)


def try_tilt(seed: int) -> Outcome:
    robot = robot_of(LBR)
    theta, payload = draw(robot, seed)
    return identify(robot, record(robot, theta, payload, seed, tilt=np.radians(2.0)), payload)


WEIGHTS, TOLERANCE = (1.0, 2.0), 0.002
RECORD = CalibrationRecord(serial="A", date=date.today().isoformat())


def load_recordings(theta: np.ndarray, seed: int, stated: dict[float, float]) -> list[LoadedRecording]:
    """The empty hand and weights of a Gen3: true mass to stated mass [kg]."""
    robot = robot_of(GEN3)
    shape = robot.payload_prior.shape
    held: list[tuple[np.ndarray, KnownLoad]] = [(np.zeros(10), empty_hand())]
    for mass, said in stated.items():
        com = Box(shape.com.center - 0.005, shape.com.center + 0.005)
        payload = from_com_form(mass, shape.com.center, 0.2 * mass * shape.gyration**2 * np.eye(3))
        held.append((payload, reference_weight(robot, said, TOLERANCE, com)))
    return [
        LoadedRecording(load.name, [record(robot, theta, payload, 100 * seed + number, arm_seed=seed)], load)
        for number, (payload, load) in enumerate(held)
    ]


def try_weight(seed: int, error: float, count: int) -> tuple[bool, bool]:
    """The first of one or two weights is off by a share: whether that is noticed, whether it is said to be unseen.

    As :func:`calibrate_arm` finds it before its bounds, which take most of its time.
    """
    robot, none = robot_of(GEN3), np.zeros(robot_of(GEN3).n)
    theta, _ = draw(robot, seed)
    stated = {mass: mass * (1.0 + error * (number == 0)) for number, mass in enumerate(WEIGHTS[-count:])}
    recordings, work = load_recordings(theta, seed, stated), Work(1 + count, lambda progress: None, lambda: False)
    settings = EstimatorSettings()
    parts = [(*collect_rows(robot, one, settings, none, work), one.load.prior.box) for one in recordings]
    share = find_share(join_recordings(parts, none))
    doubts = describe_doubts(replace(RECORD, weights=tuple(stated.values()), share=share))
    return any("allowed" in one for one in doubts), any("cannot be separated" in one for one in doubts)


@cache
def calibrated() -> RobotModel:
    """A Gen3 with its calibration; one, for it takes twenty seconds."""
    robot = robot_of(GEN3)
    recordings = load_recordings(draw(robot, 1001)[0], 1001, {WEIGHTS[1]: WEIGHTS[1]})
    return apply_calibration(calibrate_arm(robot, recordings, RECORD), robot)


def try_arm(seed: int, is_same: bool) -> Outcome:
    """Data of the calibrated arm, or of another one of the model, with the calibration."""
    robot = robot_of(GEN3)
    arm = 1001 if is_same else 2000 + seed
    (theta, _), (_, payload) = draw(robot, arm), draw(robot, 3000 + seed)
    return identify(calibrated(), record(robot, theta, payload, 3000 + seed, arm_seed=arm), payload)


def run(trials: int, only: str = "", verbose: bool = False) -> list[dict]:
    """Return a row for each attack whose name has these words."""
    rows = []

    def add(attack: str, make, is_kept: bool = False) -> None:
        if only not in attack:
            return
        outcomes = []
        for seed in range(trials):
            outcomes.append(make(seed))
            if verbose:
                print(attack, seed, outcomes[-1], flush=True)
        noticed = sum(one.is_noticed for one in outcomes)
        alarms = sum(one.alarm for one in outcomes)
        wrong = sum(not one.is_noticed and not one.is_inside for one in outcomes)
        shares = [one.agreement.share for one in outcomes if one.agreement is not None]
        note = f"{alarms} alarms, {noticed - alarms} warnings"
        note += "" if is_kept else f"; unnoticed with the truth inside: {trials - noticed - wrong}"
        note += f"; median share {np.median(shares):.2f}" if shares else ""
        rows.append(
            {"point": "3", "attack": attack, "trials": trials, "failed": noticed if is_kept else wrong, "note": note}
        )

    add("false warning, all assumptions kept, Gen3", lambda seed: try_kept(GEN3, seed), is_kept=True)
    add("false warning, all assumptions kept, LBR", lambda seed: try_kept(LBR, seed), is_kept=True)
    add("gripper missing from the model, Gen3", try_gripper)
    add("torques 20 ms late, LBR", try_lag)
    add("base tilted by 2 deg, LBR", try_tilt)
    add("false warning with its own calibration, Gen3", lambda seed: try_arm(seed, True), is_kept=True)
    add("calibration of another arm of the model, Gen3", lambda seed: try_arm(seed, False))
    for error, count in ((0.0, 2), (0.03, 1), (0.1, 1), (0.03, 2), (0.1, 2)):
        attack = f"a reference weight {100 * error:.0f} % off, {count} weight{'s' * (count > 1)}"
        if only not in attack:
            continue
        found = [try_weight(seed, error, count) for seed in range(trials)]
        noticed, said = (sum(one) for one in zip(*found, strict=True))
        failed = noticed if not error else sum(not any(one) for one in found)
        note = f"noticed {noticed}, named as what cannot be seen {said}"
        rows.append({"point": "3", "attack": attack, "trials": trials, "failed": failed, "note": note})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=20, help="of each attack")
    parser.add_argument("--only", default="", help="words of the attacks to run")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    for row in run(options.trials, options.only, options.verbose):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
