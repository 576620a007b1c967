"""Makes the recordings of the examples: an arm that follows sines, with the torques that Pinocchio says it needs."""

from __future__ import annotations

import numpy as np
import pinocchio as pin

import sysid_ros as sr


def simulate(robot, payload, seconds=3.0, rate=500.0, seed=0):
    """Return arrays t [s], q, v, tau of a motion with a payload; torques are as sensors of a nominal arm measure them.

    Args:
        robot: The arm, of ``sr.load_robot``.
        payload: Ten inertial parameters about the frame of the last joint, (10,); zeros for none.
        seconds: Length of the motion [s].
        rate: Samples per second [Hz].
        seed: Of motion and noise.
    """
    rng = np.random.default_rng(seed)
    t = np.arange(round(seconds * rate) + 1) / rate
    model = robot.pin_model.copy()
    if np.any(payload):
        model.inertias[robot.n] = model.inertias[robot.n] + pin.Inertia.FromDynamicParameters(payload)
    data = model.createData()
    size, phase = rng.uniform(0.3, 0.7, robot.n), rng.uniform(0.0, 2.0 * np.pi, robot.n)
    omega = 2.0 * np.pi * rng.uniform(0.3, 0.6, robot.n)

    def motion(at):
        angle = np.multiply.outer(at, omega) + phase
        return robot.home + size * np.sin(angle), size * omega * np.cos(angle), -size * omega**2 * np.sin(angle)

    coulomb, viscous, armature, offset = robot.friction(robot.theta_nominal).T

    def torque(at):
        q, v, a = motion(at)
        rigid = np.array([pin.rnea(model, data, *row) for row in zip(q, v, a, strict=True)])
        meaning = robot.sensors.effort_meaning
        if meaning.has_friction:
            rigid += coulomb * np.sign(v) + viscous * v + offset
        return rigid + armature * a * meaning.has_armature

    # A held effort is the mean since the sample before.
    tau = _mean(torque, t, 1.0 / rate) if robot.sensors.effort_is_held else torque(t)
    q, v, _ = motion(t)
    sensors = robot.sensors
    step = sensors.position_resolution
    q = np.round(q / step) * step
    v = v + 0.5 * sensors.velocity_error * rng.uniform(-1.0, 1.0, v.shape)
    tau = tau + 0.5 * sensors.effort_absolute_error * rng.uniform(-1.0, 1.0, tau.shape)
    return {"t": t, "q": q, "v": v, "tau": tau}


def _mean(torque, t, period):
    nodes, weights = np.polynomial.legendre.leggauss(4)
    return 0.5 * sum(w * torque(t + 0.5 * period * (x - 1.0)) for x, w in zip(nodes, weights, strict=True))


def dumbbell(mass=1.8, robot=None):
    """Return the ten parameters of a rod of 20 cm across the hand, with its centre 5 cm in front of the tool frame."""
    from sysid_ros.core.model.inertia import from_com_form, transform_parameters
    from sysid_ros.core.model.robot import tool_transform

    body = from_com_form(mass, [0.0, 0.0, 0.05], mass * np.diag([0.0034, 0.0002, 0.0034]))
    return transform_parameters(body, *tool_transform(robot or sr.load_robot("kinova_gen3_2f85")))
