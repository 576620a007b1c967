"""Which robot a proof is about."""

from __future__ import annotations

from sysid_ros.core.model.kinematics import joint_axis
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.trajectories.base import fingerprint


def robot_hash(robot: RobotModel) -> str:
    """Fingerprint of what a proof takes from a robot, as 64 hex digits.

    Joints, limits, spheres and gravity, and what the tracking bound rests on: nominal parameters, sensors and the prior
    of the payload. The box of the arm's parameters has a hash of its own.
    """
    model = robot.pin_model
    base = model.frames[model.getFrameId(robot.base_frame)].placement
    placements = [model.jointPlacements[joint].homogeneous for joint in range(1, robot.n + 1)]
    axes = [joint_axis(model, joint) for joint in range(1, robot.n + 1)]
    limits, sensors = robot.limits, robot.sensors
    spheres = (*robot.spheres, *robot.payload_prior.spheres)
    rows = [[sphere.body, *sphere.center, sphere.radius] for sphere in spheres]
    measured = (
        sensors.position_resolution, sensors.velocity_error, [sensors.stamp_jitter, sensors.velocity_is_difference]
    )  # fmt: skip
    prior = robot.payload_prior
    shape = [] if prior.shape is None else [*prior.shape.com.lower, *prior.shape.com.upper, prior.shape.gyration]
    known = (robot.theta_nominal, prior.box.lower, prior.box.upper, shape)
    # The posture at home tells which spheres overlap by their making, and so are not compared.
    arrays = (base.homogeneous, placements, axes, robot.gravity, rows, robot.home, *known, *measured)
    pairs = [f"{one}/{other}" for one, other in robot.never_touch]
    links = [robot.base_frame, robot.flange_frame, *(sphere.link for sphere in spheres), *pairs]
    kind = "robot:" + ",".join([*robot.joint_names, *links])
    return fingerprint(kind, *arrays, *vars(limits).values())
