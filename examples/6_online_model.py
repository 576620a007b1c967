"""A wrong model is replaced by one that is fitted while a simulated arm moves (SVA). No bound is proven for that.

``python examples/6_online_model.py [seconds of motion]``
"""

import sys

import numpy as np

from sysid_ros.core.control import OnlineModelController
from sysid_ros.core.control.baselines import OnlineModelSettings
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.online_model.least_squares import Observation, OnlineFitSettings
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.channel import collect_samples
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopMode, LoopSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm
from sysid_ros.drivers.mujoco.simulation import load_payload

robot = load_robot("kinova_gen3_2f85")
arm = MujocoArm(robot, payload=load_payload(robot, "dumbbell_8lb"))  # the nominal model is wrong about it
# The driver takes three samples per second, as the paper.
fit = OnlineFitSettings(capacity=50, rate=10.0)
settings = OnlineModelSettings(frequency=60.0, observation=Observation.MOMENTUM, fit=fit)
controller = OnlineModelController(robot, settings, learns=False)
loop = ControlLoop(arm, controller, robot, LoopSettings(allows_uncertified=True))
fitter = settings.make_fitter(robot, controller.model)  # beside the loop, as in the driver
loop.connect()


def run(cycles):
    """Run the loop, and give what it measured to the fit; return the largest error of each joint [rad]."""
    samples = []
    for _ in range(cycles):
        loop.heartbeat()
        samples.append(loop.step())
    measured = collect_samples(samples, robot.n)
    fitted = fitter.add(measured.block, measured.modes == LoopMode.TRACK)
    if fitted is not None:
        loop.offer_model(fitted)
    return np.abs(measured.q_d - measured.block.q).max(axis=0)


run(300)
rng, still, left = np.random.default_rng(0), np.zeros(robot.n), float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
while left > 0.0:
    goal, errors = robot.home + rng.uniform(-0.4, 0.4, robot.n), []
    loop.follow_uncertified(BezierTrajectory(loop.status().reference, still, still, goal, 2.0))
    while loop.mode is LoopMode.TRACK:
        errors.append(run(20))
    status, left = loop.status().online_model, left - 2.0
    fit, gate = status.model.fit, "open" if status.is_open else "closed"
    print(
        f"{fit.samples:2} samples, R^2 at least {fit.determination.min():.4f}, gate {gate}, "
        f"largest error {1e3 * np.max(errors):.2f} mrad"
    )
