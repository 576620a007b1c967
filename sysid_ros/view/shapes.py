"""What links look like: the visual shapes of a URDF as triangles in the frames of bodies."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pinocchio as pin
from numpy.typing import NDArray

from sysid_ros.core.model.mesh_spheres import find_mesh
from sysid_ros.core.model.robot import RobotModel
from sysid_ros.core.model.spheres import form_of, placement_of

Array = NDArray[np.float64]


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
    """Return the visual shapes of an arm's URDF; those that cannot be drawn are left out.

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
            return _read_mesh(trimesh, mesh, folder)
        makers: dict[str, Callable[[], Any]] = {
            "box": lambda: trimesh.creation.box(2.0 * half),
            "cylinder": lambda: trimesh.creation.cylinder(half[0], 2.0 * half[2]),
            "sphere": lambda: trimesh.creation.icosphere(2, half[0]),
        }
        return makers[tag]() if tag else None
    except Exception:  # a reader of meshes has no common error; the arm is drawn without it
        return None


def _read_mesh(trimesh: Any, element: ET.Element, folder: Path) -> Any:
    path = find_mesh(element.get("filename", ""), folder / "robot.urdf")
    if path is None:
        return None
    mesh = trimesh.load(path, force="mesh")
    mesh.apply_scale([float(word) for word in element.get("scale", "1 1 1").split()])
    return mesh
