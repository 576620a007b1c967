"""Estimates and pictures of free-flying robots as messages."""

from __future__ import annotations

import numpy as np
from builtin_interfaces.msg import Time
from std_msgs.msg import Header
from visualization_msgs.msg import MarkerArray

from sysid_msgs.msg import IdentifiabilityReport
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.free_floating.procedure import FreeFlyerIdentification
from sysid_ros.core.free_floating.robot import FreeFlyer
from sysid_ros.core.free_floating.self_collision import SelfCollisionModel
from sysid_ros.core.trajectories.families import CycloidTrajectory
from sysid_ros.drivers.arm import Array
from sysid_ros.ros.conversions import stamp_to_message
from sysid_ros.ros.markers import MarkerBuilder

_PATH_POINTS = 200


def minimal_to_message(identification: FreeFlyerIdentification, stamp_ns: int) -> IdentifiabilityReport:
    """Return the minimal parameters with standard deviations and guaranteed bounds; ``text`` has values."""
    minimal, estimate, bounds = identification.minimal, identification.estimate, identification.bounds
    lines = (
        f"{minimal.names[k]} = {estimate.values[k]:.6g} +- {estimate.deviations[k]:.2g} {minimal.units[k]}"
        for k in range(minimal.count)
    )
    return IdentifiabilityReport(
        header=Header(stamp=stamp_to_message(stamp_ns), frame_id="base"),
        method="data",
        base_parameters=[minimal.describe(k) for k in range(minimal.count)],
        base_names=list(minimal.names),
        base_units=list(minimal.units),
        determined=minimal.count,
        condition_number=float(identification.condition_number),
        deviations=estimate.deviations.tolist(),
        lower=[] if bounds is None else bounds.box.lower.tolist(),
        upper=[] if bounds is None else bounds.box.upper.tolist(),
        text="\n".join(lines),
    )


def draw_free_flyer(
    robot: FreeFlyer,
    q: Array,
    planned: CycloidTrajectory | None,
    stamp: Time,
    held: ParameterEstimate | None = None,
) -> MarkerArray:
    """Draw robot, paths and what it holds, all seen from the base.

    Spheres and boxes are the robot, lines the paths its last bodies are going to take. An object is drawn by its
    inertia ellipsoid, its CoM, the box its CoM certainly lies in, and its mass with bounds.

    Args:
        robot: The robot.
        q: Joint positions, (n,) [rad].
        planned: Motion of joints and wheels that is being followed; None for none.
        stamp: Stamp of the markers.
        held: What is known of an object in the hand; None for nothing.
    """
    builder, model = MarkerBuilder("base", stamp), SelfCollisionModel(robot)
    states = robot.tree.evaluate(q[None], np.zeros((1, robot.n)))
    for box in model.boxes:
        builder.add_box("arm", box.center, 2.0 * box.half_extents, box.rotation)
    for center, radius in model.spheres(states):
        builder.add_sphere("arm", center, radius)
    if planned is not None:
        way = planned.sample(np.linspace(0.0, planned.duration, _PATH_POINTS))[0][:, : robot.n]
        positions = robot.tree.evaluate(way, np.zeros_like(way)).positions
        for body in sorted(set(range(1, robot.tree.count)) - set(robot.tree.parents.tolist())):
            builder.add_path("plan", positions[:, body])
    if held is not None and held.is_consistent:
        body, placement = robot.frame(held.frame)
        rotation, origin = states.rotations[0, body], states.positions[0, body]
        builder.add_payload(held, rotation @ placement.rotation, origin + rotation @ placement.translation)
    return builder.array()
