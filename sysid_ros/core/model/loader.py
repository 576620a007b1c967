"""Reads a robot from ``config/<name>.yaml`` and its URDF. (Provisional: the models work package completes it.)"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pinocchio as pin
import yaml

from sysid_ros.core.model.box import Box
from sysid_ros.core.model.robot import (
    EffortMeaning,
    JointLimits,
    PayloadPrior,
    RobotModel,
    SensorModel,
    Sphere,
)


def load_robot(name: str = "kinova_gen3_2f85") -> RobotModel:
    path = Path(__file__).parents[3] / "config" / f"{name}.yaml"
    cfg = yaml.safe_load(path.read_text())
    urdf = (path.parent / cfg["urdf"]).read_text().replace('"continuous"', '"revolute"')
    joints = list(cfg["joints"])
    full = pin.buildModelFromXML(urdf)
    locked = [full.getJointId(j) for j in full.names[1:] if j not in joints]
    model = pin.buildReducedModel(full, locked, pin.neutral(full)) if locked else full
    n = len(joints)
    arr = lambda key: np.array([cfg["joints"][j][key] for j in joints], dtype=float)  # noqa: E731
    inertial = np.concatenate([model.inertias[i + 1].toDynamicParameters() for i in range(n)])
    friction = np.stack([arr("coulomb"), arr("viscous"), arr("armature"), arr("offset")], axis=1)
    friction_radius = np.stack([arr("coulomb_radius"), arr("viscous_radius"), arr("armature_radius"), arr("offset_radius")], axis=1)
    theta = np.concatenate([inertial, friction.ravel()])
    radius = np.concatenate([cfg["inertial_uncertainty"] * np.abs(inertial), friction_radius.ravel()])
    s = cfg["sensors"]
    full_like = lambda v: np.broadcast_to(np.asarray(v, dtype=float), (n,)).copy()  # noqa: E731
    sensors = SensorModel(
        EffortMeaning(s["effort_meaning"]), float(s["effort_sign"]), full_like(s["effort_relative_error"]),
        full_like(s["effort_absolute_error"]), bool(s["effort_is_held"]), full_like(s["position_resolution"]),
        full_like(s["velocity_error"]), float(s["stamp_jitter"]))
    p = cfg["payload_prior"]
    prior = PayloadPrior(Box(p["lower"], p["upper"]), np.array(p["nominal"], dtype=float))
    spheres = tuple(Sphere(int(x["body"]), np.array(x["center"], dtype=float), float(x["radius"]), x.get("link", "")) for x in cfg["spheres"])
    return RobotModel(
        name=name, pin_model=model, joint_names=tuple(joints), base_frame=cfg["base_frame"], flange_frame=cfg["flange_frame"],
        tool_frame=cfg["tool_frame"],
        limits=JointLimits(arr("lower"), arr("upper"), arr("velocity"), arr("acceleration"), arr("effort")),
        theta_nominal=theta, theta_box=Box.around(theta, radius), sensors=sensors, spheres=spheres, payload_prior=prior,
        rated_payload=float(cfg["rated_payload"]), home=np.array(cfg["home"], dtype=float), urdf=urdf)
