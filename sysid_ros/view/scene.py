"""The scene: an arm, the box its payload's centre of mass lies in, plans and obstacles, in a browser by ``viser``."""

from __future__ import annotations

import io
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.collision.swept import SweptSpheres
from sysid_ros.core.common.box import Box
from sysid_ros.core.common.errors import ParameterOutOfRange
from sysid_ros.core.estimation.parameters.estimate import ParameterEstimate
from sysid_ros.core.model.inertia import (
    PARAMETER_NAMES,
    PARAMETER_UNITS,
    bound_com,
    compute_inertia_ellipsoid,
    is_physically_consistent,
)
from sysid_ros.core.model.mechanics import BodyPoses
from sysid_ros.core.model.mesh_spheres import find_mesh
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.spheres import form_of, placement_of
from sysid_ros.view.address import LOOPBACK, PORT, require_viewer

Array = NDArray[np.float64]

COLORS = {
    "link": (178, 186, 198), "sphere": (140, 153, 173), "com": (217, 26, 26), "payload": (242, 140, 26),
    "plan": (26, 140, 230), "next": (60, 190, 170), "obstacle": (190, 90, 76), "ground": (115, 115, 107),
}  # fmt: skip
_LEAST = 1e-4
"""Nothing is drawn without a size [m]."""
_KEPT = 2000
"""Estimates that are plotted; of more, every second one is dropped."""


class ArmView:
    """Shows one arm. Use it from one thread.

    Args:
        robot: The arm, with the prior of its payload.
        port: Port on this machine, 1024 to 65535; the next free one where it is taken.
        folder: Where file names of meshes begin; None looks for them by package alone.

    Raises:
        SysidError: ``viser`` is not installed.
        ParameterOutOfRange: There is no such port.
    """

    def __init__(self, robot: RobotModel, port: int = PORT, folder: Path | None = None):
        require_viewer()
        viser = import_module("viser")
        if not 1024 <= port <= 65535:
            raise ParameterOutOfRange("port of the view", port, "1024 to 65535")
        self._viser, self._robot, self._poses = viser, robot, BodyPoses(robot)
        with redirect_stdout(io.StringIO()):  # it prints a table with the address; ours goes where our words go
            self.server = viser.ViserServer(host=LOOPBACK, port=port, label=robot.name, verbose=False)
        scene, gui = self.server.scene, self.server.gui
        gui.configure_theme(show_logo=False, show_share_button=False, control_width="medium")
        scene.set_up_direction("+z")
        self.server.initial_camera.position = (0.9, -1.0, 0.9)
        self.server.initial_camera.look_at = (0.25, 0.0, 0.4)
        self._words = gui.add_markdown("Nothing is known of the payload yet.")
        self._choice = gui.add_dropdown("parameter", PARAMETER_NAMES, initial_value="m")
        self._choice.on_update(lambda _: self._plot())
        self._plotted: Any = None
        with gui.add_folder("Show", expand_by_default=False):
            boxes = {
                name: gui.add_checkbox(name, shown)
                for name, shown in (
                    ("links", True), ("spheres", False), ("frames", False), ("payload", True), ("plans", True),
                    ("environment", True),
                )
            }  # fmt: skip
        self._bodies, self._groups = self._add_arm(folder)
        for name in ("plans", "environment"):
            self._groups[name] = [scene.add_frame(f"/{name}", show_axes=False)]
        for name, box in boxes.items():
            box.on_update(lambda event, name=name: self._show(name, event.target.value))
            self._show(name, box.value)
        self._parts: dict[str, list[Any]] = {"payload": [], "plans": [], "environment": []}
        self._times: list[float] = []
        self._estimates: list[Array] = []
        self.show_scene(Scene())
        self.show_posture(robot.home)

    @property
    def url(self) -> str:
        """Address for a browser on this machine."""
        return f"http://{LOOPBACK}:{self.server.get_port()}"

    @property
    def is_watched(self) -> bool:
        """Whether a browser is connected."""
        return bool(self.server.get_clients())

    def close(self) -> None:
        """Stop the server."""
        with redirect_stdout(io.StringIO()):
            self.server.stop()

    # The arm

    def _add_arm(self, folder: Path | None) -> tuple[list[Any], dict[str, list[Any]]]:
        scene, robot = self.server.scene, self._robot
        bodies = [scene.add_frame(f"/arm/body{k}", show_axes=False) for k in range(robot.n + 1)]
        groups: dict[str, list[Any]] = {
            name: [scene.add_frame(f"/arm/body{k}/{name}", show_axes=False) for k in range(robot.n + 1)]
            for name in ("links", "spheres", "payload")
        }
        groups["frames"] = [
            scene.add_frame(f"/arm/body{k}/frames", axes_length=0.09, axes_radius=0.004) for k in range(robot.n + 1)
        ]
        shapes = visual_shapes(robot, folder)
        drawn = {shape.body for shape in shapes}
        for k, shape in enumerate(shapes):
            scene.add_mesh_simple(
                f"/arm/body{shape.body}/links/{k}", shape.vertices, shape.faces, color=COLORS["link"],
                opacity=0.5 if shape.body == robot.n else None,  # the hand hides what it holds
            )  # fmt: skip
        for k, sphere in enumerate(robot.spheres):
            # A body that the description gives no shape is shown by its spheres.
            group = "spheres" if sphere.body in drawn else "links"
            scene.add_icosphere(
                f"/arm/body{sphere.body}/{group}/s{k}", radius=sphere.radius, color=COLORS["sphere"], subdivisions=2,
                opacity=0.35 if group == "spheres" else None, position=sphere.center,
            )  # fmt: skip
        return bodies, groups

    def _show(self, name: str, is_shown: bool) -> None:
        for frame in self._groups[name]:
            frame.visible = is_shown

    def show_posture(self, q: Array) -> None:
        """Move the arm to positions (n,) [rad]."""
        rotations, origins = self._poses.compute(q)
        with self.server.atomic():
            for body, rotation, origin in zip(self._bodies, rotations, origins, strict=True):
                body.wxyz, body.position = _quaternion(rotation), origin

    # The payload

    def show_estimate(self, estimate: ParameterEstimate | None, seconds: float) -> None:
        """Show an estimate of the payload, and add it to the plot.

        Args:
            estimate: The estimate; None or an inconsistent one shows nothing.
            seconds: Its time [s]; one before the last starts the plot anew.
        """
        if self._times and seconds < self._times[-1]:
            self._times.clear()
            self._estimates.clear()
        if estimate is not None and estimate.is_consistent:
            self._times.append(seconds)
            self._estimates.append(np.stack([estimate.lower, estimate.values, estimate.upper]))
            if len(self._times) > _KEPT:
                del self._times[1::2], self._estimates[1::2]
        self.draw_payload(estimate)
        self._plot()

    def show_history(self, times: Sequence[float] | Array, bounds: Array) -> None:
        """Plot many estimates at once.

        Args:
            times: Their times, (K,) [s].
            bounds: Lower bounds, point estimates, upper bounds, (K, 3, 10).
        """
        self._times, self._estimates = list(map(float, times)), list(bounds)
        self._plot()

    def draw_payload(self, estimate: ParameterEstimate | None) -> None:
        """Draw an estimate, in words and as box, centre and ellipsoid at the hand."""
        if estimate is None:
            self._redraw("payload", [])
            self._words.content = "Nothing is known of the payload yet."
            return
        if not estimate.is_consistent:
            self._redraw("payload", [])
            self._words.content = f"**Alarm.** {estimate.alarm_text or 'No payload is consistent with the data.'}"
            return
        box = com_box(self._robot, estimate)
        words = [f"**{_interval(estimate, 0)} kg**"]
        parts: list[Any] = []
        scene, root = self.server.scene, f"/arm/body{self._robot.n}/payload"
        if box is not None:
            size = np.maximum(box.width, _LEAST)
            words.append("centre of mass within " + " × ".join(f"{1e3 * width:.0f}" for width in size) + " mm")
            middle = 0.5 * (box.lower + box.upper)
            parts.append(
                scene.add_box(f"{root}/com", COLORS["com"], size, opacity=0.3, position=middle, cast_shadow=False)
            )
            edges = _edges(box)
            parts.append(scene.add_line_segments(f"{root}/edges", edges, COLORS["com"], thickness=0.0015))
        else:
            words.append("centre of mass not bounded")
        if np.all(np.isfinite(estimate.values)) and is_physically_consistent(estimate.values):
            ellipsoid = compute_inertia_ellipsoid(estimate.values)
            semi_axes = np.maximum(ellipsoid.semi_axes, _LEAST)
            turn, place = _quaternion(ellipsoid.rotation), ellipsoid.center
            parts.append(
                scene.add_icosphere(
                    f"{root}/body", 1.0, COLORS["payload"], scale=tuple(map(float, semi_axes)), opacity=0.45, wxyz=turn,
                    position=place, cast_shadow=False,
                )
            )  # fmt: skip
            parts.append(scene.add_icosphere(f"{root}/center", 0.006, COLORS["com"], position=place))
            parts.append(
                scene.add_label(f"{root}/mass", _interval(estimate, 0) + " kg", position=place, anchor="bottom-left")
            )
        seconds, windows = f"{estimate.data_seconds:.1f} s", estimate.number_of_windows
        words.append(f"{windows} windows, {seconds} of data" if windows else f"as known at {seconds}")
        if not estimate.is_guaranteed:
            words.append("these bounds are not guaranteed")
        self._redraw("payload", parts)
        self._words.content = "\n\n".join(words)

    def _plot(self) -> None:
        """Plot the chosen parameter over time."""
        if not self._times:
            return
        uplot, index = self._viser.uplot, PARAMETER_NAMES.index(self._choice.value)
        times, bounds = np.array(self._times), np.array(self._estimates)[:, :, index]
        if times.size == 1:
            times, bounds = np.append(times, times + 1e-3), np.repeat(bounds, 2, axis=0)
        data = (times, *bounds.T.copy())
        if self._plotted is not None:
            self._plotted.data = data
            self._plotted.title = _title(index)
            return
        gray = "#8b95a3"
        series = [uplot.Series(label=name, stroke=color, width=2) for name, color in
                  (("lower", gray), ("estimate", "#1660b8"), ("upper", gray))]  # fmt: skip
        self._plotted = self.server.gui.add_uplot(
            data,
            (uplot.Series(label="time [s]"), *series),
            scales={"x": uplot.Scale(time=False, auto=True), "y": uplot.Scale(auto=True)},
            bands=(uplot.Band(series=(3, 1), fill="rgba(22, 96, 184, 0.15)"),),
            legend=uplot.Legend(show=True),
            title=_title(index),
            aspect=1.3,
        )

    # Plans and environment

    def show_plans(
        self,
        path: Array | None,
        waiting: Array | None = None,
        swept: SweptSpheres | None = None,
    ) -> None:
        """Show plans as paths of the tool.

        Args:
            path: Points on the path of the plan that is followed, (N, 3) [m].
            waiting: Those of the plan that waits, (N, 3) [m].
            swept: The room the plan takes.
        """
        scene = self.server.scene
        parts: list[Any] = []
        for k, (name, points) in enumerate((("plan", path), ("next", waiting))):
            if points is not None and len(points) > 1:
                segments = np.stack([points[:-1], points[1:]], axis=1)
                parts.append(scene.add_line_segments(f"/plans/{k}", segments, COLORS[name], thickness=0.004))
        if swept is not None and swept.centers.size:
            ball = import_module("trimesh").creation.icosphere(1, 1.0)  # comes with the viewer
            centers = swept.centers.reshape(-1, 3)
            radii = np.tile(np.asarray(swept.radii, dtype=float), len(swept.centers))
            still = np.tile([1.0, 0.0, 0.0, 0.0], (len(centers), 1))
            parts.append(
                scene.add_batched_meshes_simple(
                    "/plans/swept", ball.vertices, ball.faces, still, centers, batched_scales=radii,
                    batched_colors=COLORS["plan"], opacity=0.05, cast_shadow=False, receive_shadow=False,
                )
            )  # fmt: skip
        self._redraw("plans", parts)

    def show_scene(self, environment: Scene, fault: str | None = None) -> None:
        """Show obstacles and ground; in red, with the reason, where they are not known."""
        scene, parts = self.server.scene, []
        color = COLORS["obstacle"] if fault is None else (230, 26, 26)
        for k, obstacle in enumerate(environment.obstacles):
            turn, center = _quaternion(obstacle.rotation), obstacle.center
            size = np.maximum(2.0 * obstacle.half_extents, _LEAST)
            root = f"/environment/{k}"
            parts.append(scene.add_box(root, color, size, opacity=0.5, wxyz=turn, position=center))
            parts.append(scene.add_label(f"{root}/name", obstacle.name))
        height = 0.0 if environment.ground_height is None else environment.ground_height
        parts.append(scene.add_grid("/environment/ground", 4.0, 4.0, cell_size=0.1, position=(0.0, 0.0, height)))
        if fault is not None:
            parts.append(scene.add_label("/environment/fault", f"SCENE NOT KNOWN: {fault}", position=(0.0, 0.0, 1.4)))
        self._redraw("environment", parts)

    def _redraw(self, group: str, parts: list[Any]) -> None:
        """Remove the old parts, unless a new one of the same name has taken their place."""
        names = {part.name for part in parts}
        for old in reversed(self._parts[group]):  # what hangs on others comes after them, and goes with them
            if old.name not in names:
                old.remove()
        self._parts[group] = parts


def com_box(robot: RobotModel, estimate: ParameterEstimate) -> Box | None:
    """Return the box of the CoM in the frame of the last joint [m]; None where it is not bounded."""
    shape = robot.payload_prior.shape if estimate.target == "payload" else None
    lower, upper = bound_com(estimate.lower, estimate.upper, None if shape is None else shape.com)
    if not np.all(np.isfinite(upper - lower)):
        return None
    return Box(lower, upper)


def _edges(box: Box) -> Array:
    corners = np.array(list(product(*zip(box.lower, box.upper, strict=True))))
    return np.array([[corners[a], corners[a | bit]] for bit in (1, 2, 4) for a in range(8) if not a & bit])


def _interval(estimate: ParameterEstimate, index: int) -> str:
    value = float(estimate.values[index])
    bounds = f"[{estimate.lower[index]:.3f}, {estimate.upper[index]:.3f}]"
    return f"{value:.3f} in {bounds}" if np.isfinite(value) else bounds


def _title(index: int) -> str:
    return f"{PARAMETER_NAMES[index]} [{PARAMETER_UNITS[index].replace('^2', '²')}]"


def _quaternion(rotation: Array) -> tuple[float, float, float, float]:
    """Return w, x, y, z of a rotation (3, 3)."""
    x, y, z, w = pin.Quaternion(np.asarray(rotation, dtype=float)).normalized().coeffs()
    return float(w), float(x), float(y), float(z)


@dataclass(frozen=True)
class Shape:
    """Triangles fixed to a body.

    Attributes:
        body: 0 for the base, i for the body moved by joint i.
        link: Link they belong to.
        vertices: (V, 3) in the frame of the body [m].
        faces: (F, 3) indices of vertices.
    """

    body: int
    link: str
    vertices: Array
    faces: NDArray[np.int64]


def visual_shapes(robot: RobotModel, folder: Path | None = None) -> list[Shape]:
    """Return the visual shapes of an arm's URDF; shapes that cannot be drawn are left out.

    Args:
        robot: The arm.
        folder: Where file names of meshes begin; None looks for them by package alone.
    """
    trimesh = import_module("trimesh")  # comes with the viewer
    shapes = []
    model = robot.pin_model
    for link in ET.fromstring(robot.urdf).iter("link") if robot.urdf else ():
        name = link.get("name", "")
        if not model.existFrame(name):
            continue
        frame = model.frames[model.getFrameId(name)]
        for visual in link.iter("visual"):
            mesh = _triangles(trimesh, visual, folder or Path.cwd())
            if mesh is None:
                continue
            place = frame.placement * pin.SE3(*placement_of(visual))
            vertices = np.asarray(mesh.vertices) @ place.rotation.T + place.translation
            shapes.append(Shape(frame.parentJoint, name, vertices, np.asarray(mesh.faces)))
    return shapes


def _triangles(trimesh: Any, visual: ET.Element, folder: Path) -> Any:
    """Return a mesh of a ``<visual>``, None where it cannot be read."""
    (tag, half), mesh = form_of(visual), visual.find("geometry/mesh")
    try:
        if mesh is not None:
            path = find_mesh(mesh.get("filename", ""), folder / "robot.urdf")
            loaded = None if path is None else trimesh.load(path, force="mesh")
            if loaded is not None:
                loaded.apply_scale([float(word) for word in mesh.get("scale", "1 1 1").split()])
            return loaded
        makers: dict[str, Callable[[], Any]] = {
            "box": lambda: trimesh.creation.box(2.0 * half),
            "cylinder": lambda: trimesh.creation.cylinder(half[0], 2.0 * half[2]),
            "sphere": lambda: trimesh.creation.icosphere(2, half[0]),
        }
        return makers[tag]() if tag else None
    except Exception:  # a reader of meshes has no common error; the arm is drawn without it
        return None
