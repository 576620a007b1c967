"""Draws docs/images/monitor.png: ``python docs/make_monitor_image.py``. Its markers are those of the node ``monitor``.

Plans that take over from each other are planned and certified in the scene ``stacking``, with a payload that is partly
identified; what the node publishes while the third one is followed and the fourth one waits is drawn with
matplotlib, as RViz does not run without a display.
"""

from __future__ import annotations

import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pinocchio as pin
from builtin_interfaces.msg import Time
from mpl_toolkits.mplot3d.art3d import Line3DCollection, Poly3DCollection
from visualization_msgs.msg import Marker

from sysid_ros.core.certification.assumptions import Assumptions
from sysid_ros.core.collision.clearance import spheres_of_payload
from sysid_ros.core.collision.swept import sweep_spheres
from sysid_ros.core.common.box import Box
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.loader import load_robot
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.planning.planner import CertifiedPlanner
from sysid_ros.core.planning.request import PlanRequest
from sysid_ros.ros.markers import MarkerBuilder, draw_plan, draw_scene
from sysid_ros.ros.robot import load_scene

PATH = Path(__file__).with_name("images") / "monitor.png"
TAKEOVER, SHOWN_AT = 1.5, 1.1
"""Times of a plan at which the next one takes over, and at which the arm is drawn [s]."""
FOLLOWED = 2
"""Number of the plan that is followed, from 0."""
KNOWN = 0.3
"""Width of the payload's box, as a part of the prior's."""
TIME_LIMIT = 30.0
"""Time for a plan; nothing waits for it here [s]."""
VIEW = {"elev": 24.0, "azim": 140.0}
LEFT_OUT = ("wall left", "wall right", "wall behind")
"""Boxes drawn as edges only, for they would hide the rest."""
_STEPS = 12
_FLOOR = 1.1


def markers() -> list[Marker]:
    """Everything the monitor publishes at one moment of a run."""
    robot, scene = load_robot("kinova_gen3_2f85"), load_scene("stacking")
    prior = robot.payload_prior
    half = 0.5 * KNOWN * prior.box.width
    box = Box(prior.nominal - half, prior.nominal + half)
    planner, assumptions = CertifiedPlanner(robot), Assumptions.of_payload(robot, box, scene=scene)
    plans = [planner.plan(PlanRequest(assumptions, start=robot.home, time_limit=TIME_LIMIT))]
    while len(plans) < FOLLOWED + 2:
        wanted = PlanRequest(
            assumptions, predecessor=plans[-1], takeover_time=TAKEOVER, time_limit=TIME_LIMIT,
            information=sum(plan.information_gained for plan in plans),
        )  # fmt: skip
        plans.append(planner.plan(wanted))
    followed, waiting = plans[FOLLOWED], plans[FOLLOWED + 1]
    path, certificate = followed.trajectory, followed.certificate
    poses, builder = BodyPoses(robot), MarkerBuilder(robot.base_frame, Time())
    draw_scene(builder, scene)
    times = np.linspace(0.0, path.duration, 100)
    swept = sweep_spheres(robot, path, scene, certificate.tracking_bound)
    draw_plan(builder, poses.tool_path(path.sample(times)[0]), swept, certificate, "plan followed")
    builder.add_path("next_plan", poses.tool_path(waiting.trajectory.sample(times)[0]))
    rotations, origins = poses.compute(path.evaluate(SHOWN_AT)[0])
    for name, spheres in (("arm", robot.spheres), ("carried", spheres_of_payload(robot, scene))):
        for sphere in spheres:
            builder.add_sphere(name, origins[sphere.body] + rotations[sphere.body] @ sphere.center, sphere.radius)
    estimate = ParameterEstimate(
        values=prior.nominal, lower=box.lower, upper=box.upper, method="set_membership", guarantee="",
        is_guaranteed=True, is_consistent=True, alarm=None,
        target="payload", frame=robot.joint_names[-1], number_of_windows=1,
        data_seconds=1.0, condition_number=1.0,
    )  # fmt: skip
    builder.add_payload(estimate, rotations[-1], origins[-1])
    return builder.array().markers[1:]


def draw(shown: list[Marker], file: Path) -> None:
    """Draws markers as RViz would, as far as matplotlib can."""
    figure = plt.figure(figsize=(9.0, 6.6), facecolor="#303030")
    axes = figure.add_axes((-0.24, -0.22, 1.5, 1.5), projection="3d", computed_zorder=False)
    axes.set_facecolor("#303030")
    axes.set_axis_off()
    order = {"ground": 0, "obstacles": 1, "swept": 2, "arm": 3, "carried": 4, "com_bounds": 5, "payload": 6, "com": 7}
    texts = []
    walls = _walls(shown)
    for marker in sorted(shown, key=lambda one: order.get(one.ns, 8)):
        layer = order.get(marker.ns, 8)
        if marker.type == Marker.CUBE:
            _draw_box(axes, marker, layer, id(marker) in walls)
        elif marker.type in (Marker.SPHERE, Marker.SPHERE_LIST):
            _draw_spheres(axes, marker, layer)
        elif marker.type == Marker.LINE_STRIP:
            points = np.array([_vector(point) for point in marker.points])
            axes.plot(*points.T, color=_color(marker), linewidth=2.2, zorder=layer)
        elif marker.ns in ("closest_text", "text"):
            style = {
                "color": _color(marker),
                "bbox": {"facecolor": "#303030", "alpha": 0.65, "linewidth": 0, "pad": 2.0},
            }
            axes.text(*_vector(marker.pose.position), marker.text, fontsize=8, ha="center", zorder=9, **style)
        elif marker.ns == "margins":
            texts.append(marker.text)
    figure.text(0.02, 0.97, "\n".join(texts), color="white", fontsize=8.5, va="top", linespacing=1.5)
    axes.set_xlim(-0.5, 0.9)
    axes.set_ylim(-0.7, 0.7)
    axes.set_zlim(0.0, 1.2)
    axes.set_box_aspect((1.4, 1.4, 1.2), zoom=0.92)
    axes.view_init(**VIEW)
    file.parent.mkdir(exist_ok=True)
    figure.savefig(file, dpi=110, facecolor=figure.get_facecolor())
    plt.close(figure)


def _walls(shown: list[Marker]) -> set[int]:
    """Boxes named in LEFT_OUT: the name of a box follows it."""
    return {
        id(box) for box, name in zip(shown, shown[1:], strict=False)
        if box.ns == "obstacles" and name.ns == "scene_text" and name.text in LEFT_OUT
    }  # fmt: skip


def _draw_box(axes: plt.Axes, marker: Marker, layer: int, is_wall: bool) -> None:
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    size = np.array([marker.scale.x, marker.scale.y, marker.scale.z])
    corners = _vector(marker.pose.position) + (0.5 * signs * size) @ _rotation(marker).T
    if marker.ns == "ground":
        corners = np.clip(corners, -_FLOOR, _FLOOR)
    faces = [[0, 1, 3, 2], [4, 5, 7, 6], [0, 1, 5, 4], [2, 3, 7, 6], [0, 2, 6, 4], [1, 3, 7, 5]]
    red, green, blue, opacity = _color(marker)
    if is_wall:
        edges = [corners[[face[k], face[(k + 1) % 4]]] for face in faces for k in range(4)]
        axes.add_collection3d(Line3DCollection(edges, colors=[(red, green, blue, 0.25)], linewidths=0.8, zorder=layer))
        return
    style = {"facecolors": [(red, green, blue, opacity)], "edgecolors": [(0, 0, 0, 0.4)], "linewidths": 0.5}
    axes.add_collection3d(Poly3DCollection([corners[face] for face in faces], zorder=layer, **style))


def _draw_spheres(axes: plt.Axes, marker: Marker, layer: int) -> None:
    around, up = np.meshgrid(np.linspace(0, 2 * np.pi, 2 * _STEPS), np.linspace(0, np.pi, _STEPS))
    unit = np.stack([np.cos(around) * np.sin(up), np.sin(around) * np.sin(up), np.cos(up)], axis=-1)
    size = 0.5 * np.array([marker.scale.x, marker.scale.y, marker.scale.z])
    surface = (unit * size) @ _rotation(marker).T
    centers = [_vector(point) for point in marker.points] or [_vector(marker.pose.position)]
    red, green, blue, opacity = _color(marker)
    opacity *= 0.5 if opacity < 0.2 else 1.0  # matplotlib draws the far half of a sphere, too
    for center in centers:
        x, y, z = np.moveaxis(surface + center, -1, 0)
        axes.plot_surface(
            x, y, z, color=(red, green, blue, opacity), linewidth=0, shade=layer > 2, zorder=layer, antialiased=False
        )


def _vector(point: object) -> np.ndarray:
    return np.array([point.x, point.y, point.z])


def _rotation(marker: Marker) -> np.ndarray:
    turned = marker.pose.orientation
    return pin.Quaternion(turned.w, turned.x, turned.y, turned.z).matrix()


def _color(marker: Marker) -> tuple[float, float, float, float]:
    return marker.color.r, marker.color.g, marker.color.b, marker.color.a


if __name__ == "__main__":
    draw(markers(), PATH)
    sys.stdout.write(f"{PATH} written, {PATH.stat().st_size} bytes\n")
