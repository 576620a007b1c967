"""Stand-ins for the tests of the drivers: a small controller, certificates, and a loop around the simulated arm."""

import doubles
import numpy as np
from textbook import load_textbook

from sysid_ros.core.certification.assumptions import box_hash, robot_hash
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import ControlLaw
from sysid_ros.core.model.mechanics import ArmDynamics
from sysid_ros.core.trajectories.families import BezierTrajectory
from sysid_ros.drivers.arm import Pacing
from sysid_ros.drivers.loop import ControlLoop
from sysid_ros.drivers.loop_types import LoopModel, LoopSettings
from sysid_ros.drivers.mujoco.arm import MujocoArm, MujocoSettings
from sysid_ros.drivers.pacing import Pacer


class ComputedTorque:
    """Computed torque with the nominal parameters; can be told to fail."""

    law = ControlLaw("computed torque, for tests")
    blend_left = 0.0

    def __init__(self, robot, stiffness=400.0, damping=40.0):
        self.robot, self.stiffness, self.damping = robot, stiffness, damping
        self.models = []
        self.spoil = lambda tau: tau

    def set_model(self, theta, theta_box, payload, payload_box):
        self.models.append((theta, payload))
        self.friction = self.robot.friction(theta)
        self.dynamics = ArmDynamics(self.robot, theta, payload)

    def reset(self, balance=None):
        pass

    def compute(self, q, v, q_d, v_d, a_d):
        coulomb, viscous, armature, offset = self.friction.T
        a = a_d + self.stiffness * (q_d - q) + self.damping * (v_d - v)
        friction = coulomb * np.tanh(v_d / 0.02) + viscous * v_d + offset
        return self.spoil(self.dynamics.torque(q, v, a) + armature * a + friction)


def build_loop(robot=None, payload="nominal", settings=None, arm_settings=None, controller=None, **arm_options):
    robot = robot or load_textbook()
    if isinstance(payload, str):
        payload = robot.payload_prior.nominal
    arm = MujocoArm(robot, payload=payload, settings=arm_settings or MujocoSettings(), **arm_options)
    # Without a disturbance observer the payload should be the one the arm holds.
    prior = robot.payload_prior
    model = LoopModel(robot.theta_nominal, robot.theta_box, prior.nominal, prior.box)
    return ControlLoop(arm, controller or ComputedTorque(robot), robot, settings or LoopSettings(), model)


def make_certificate(loop_or_boxes, trajectory, bound=0.05, robot=None, now=10.0, **changes):
    """A certificate that says what the loop wants to read; nothing was checked. A loop knows the time itself."""
    if isinstance(loop_or_boxes, tuple):
        boxes, robot = loop_or_boxes, robot or load_textbook()
        fields = {"control_law": ComputedTorque.law, "nominal_payload": robot.payload_prior.nominal}
    else:
        loop, robot, boxes = loop_or_boxes, loop_or_boxes.robot, loop_or_boxes.boxes_of(None)
        now = 1e-9 * loop.now_ns
        fields = {"control_law": loop.status().law, "nominal_payload": loop.model.payload}
    fields |= {
        "box_hash": box_hash(*boxes), "robot_hash": robot_hash(robot), "tracking_bound": np.full(trajectory.n, bound),
        "velocity_bound": robot.limits.v_max[: trajectory.n], "torque_bound": robot.limits.tau_max[: trajectory.n],
        "issued_at": now - 10.0, "expires_at": now + 3600.0,
    }  # fmt: skip
    return doubles.make_certificate(trajectory, **{**fields, **changes})


def make_move(start, step=0.4, duration=1.5):
    zeros = np.zeros_like(start)
    return BezierTrajectory(start, zeros, zeros, start + step, duration)


def start_move(loop, direction):
    """Starts a motion of all joints to 0.1 rad beside home."""
    q, zero = loop.status().reference, np.zeros(loop.robot.n)
    plan = BezierTrajectory(q, zero, zero, loop.robot.home + 0.1 * direction, 0.8)
    loop.execute(plan, make_certificate(loop, plan, bound=0.09))


def run(loop, seconds, beat=True):
    samples = []
    for _ in range(round(seconds / loop.arm.period)):
        if beat:
            loop.heartbeat()
        sample = loop.step()
        if sample is not None:
            samples.append(sample)
    return samples


def started(loop, seconds):
    """Takes the arm over and holds it for a while; returns the loop."""
    loop.connect()
    run(loop, seconds)
    return loop


def build_reporting_loop(path):
    """A loop whose arm writes its true speed and the last mode of the loop to a file when it is handed back."""
    loop = build_loop(settings=LoopSettings(heartbeat_timeout=10.0, late_limit=10.0))
    stop = loop.arm.stop

    def report(reason):
        stories = "|".join(f"{t.target.name}:{t.reason}" for t in loop.status().transitions)
        with open(path, "w") as file:
            file.write(f"{np.abs(loop.arm.truth().v).max()}\n{reason}\n{stories}\n")
        stop(reason)

    loop.arm.stop = report
    return loop


def build_loop_paced_by_its_arm():
    """A loop whose arm blocks in ``read`` for a millisecond, as FRI does for a packet, until it is lost."""
    loop, pacer = build_loop(settings=LoopSettings(late_limit=10.0)), Pacer(0.001)
    read = loop.arm.read

    def read_in_time():
        pacer.wait()
        return read()

    loop.arm.pacing, loop.arm.read = Pacing.CONTROLLER, read_in_time
    return loop


def build_nothing():
    raise SysidError("there is no arm today")
