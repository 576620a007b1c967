"""Collision spheres for links that have meshes only; meshes are read by ``trimesh``, where it is installed."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.model.spheres import cover_box, placement_of, shapes_of_links

Array = NDArray[np.float64]

_MARGIN = 1e-6
"""Largest part of a mesh outside of its oriented box by rounding, added to every radius [m]."""


@dataclass(frozen=True)
class MeshSpheres:
    """Spheres over the meshes of a URDF, and why some links have none.

    Attributes:
        spheres: Rows ``[x, y, z, radius]`` [m] in the frame of the link, for each link with spheres.
        boxes: Rotation (3, 3), centre (3,) [m] and edges (3,) [m] of the box around each mesh, in its link.
        problems: For each link whose meshes could not be covered, why.
    """

    spheres: dict[str, list[list[float]]]
    boxes: dict[str, list[tuple[Array, Array, Array]]]
    problems: dict[str, str]


def cover_meshes(urdf_text: str, urdf_path: Path) -> MeshSpheres:
    """Cover the meshes of links with the spheres of the smallest oriented box around each mesh.

    Simple shapes are ignored (:func:`~.spheres.cover_links`); paths of meshes are relative to ``urdf_path``.
    """
    found: dict[str, list[tuple[Array, Array, Array]]] = {}
    problems: dict[str, str] = {}
    try:
        trimesh: Any = import_module("trimesh")  # an extra, so that the package does not depend on it
    except ImportError:
        trimesh = None
    for link, shapes in shapes_of_links(urdf_text).items():
        for shape in shapes:
            if (mesh := shape.find("geometry/mesh")) is None:
                continue
            name = mesh.get("filename", "")
            path = find_mesh(name, urdf_path)
            if trimesh is None:
                problems[link] = "trimesh is not installed, which reads meshes (pip install trimesh)"
            elif path is None:
                problems[link] = f"its mesh {name} was not found"
            else:
                try:
                    found.setdefault(link, []).append(_box_around(trimesh, path, mesh, shape))
                except Exception as error:  # a reader of meshes has no common error for a damaged file
                    problems[link] = f"its mesh {name} cannot be read ({error})"
    boxes = {link: own for link, own in found.items() if link not in problems}
    return MeshSpheres(
        {link: [row for box in own for row in _cover(*box)] for link, own in boxes.items()}, boxes, problems
    )


def find_mesh(name: str, urdf_path: Path) -> Path | None:
    """Return the file of a mesh as the URDF at this path names it, None if it does not exist.

    ``package://NAME/...`` is searched for above the URDF and in the prefixes of ``AMENT_PREFIX_PATH``.
    """
    folder = urdf_path.resolve().parent
    scheme, separator, rest = name.partition("://")
    if not separator:
        candidates = [folder / name]
    elif scheme == "file":
        candidates = [Path(rest)]
    elif scheme == "package":
        package, _, inner = rest.partition("/")
        above = [parent for parent in (folder, *folder.parents)]
        candidates = [parent / inner for parent in above if parent.name == package]
        candidates += [parent / package / inner for parent in above]
        prefixes = [prefix for prefix in os.environ.get("AMENT_PREFIX_PATH", "").split(os.pathsep) if prefix]
        candidates += [Path(prefix) / "share" / package / inner for prefix in prefixes]
    else:
        candidates = []
    return next((path for path in candidates if path.is_file()), None)


def _box_around(trimesh: Any, path: Path, mesh: ET.Element, shape: ET.Element) -> tuple[Array, Array, Array]:
    """Return rotation (3, 3), centre (3,) [m] and edges (3,) [m] of the smallest box around a mesh, in its link."""
    loaded = trimesh.load(path, force="mesh")
    points = np.asarray(loaded.vertices, dtype=float)
    if points.ndim != 2 or len(points) < 4:
        raise ValueError("it has no surface")
    points = points * np.array([float(word) for word in mesh.get("scale", "1 1 1").split()])
    to_origin, _ = trimesh.bounds.oriented_bounds(points)
    rotation = np.asarray(to_origin[:3, :3], dtype=float)
    # The axes are the solver's, the extent is our own: no point can be outside.
    turned = points @ rotation.T
    low, high = turned.min(axis=0) - _MARGIN, turned.max(axis=0) + _MARGIN
    turn, xyz = placement_of(shape)
    return turn @ rotation.T, turn @ rotation.T @ (0.5 * (low + high)) + xyz, high - low


def _cover(rotation: Array, center: Array, size: Array) -> list[list[float]]:
    rows = []
    for row in cover_box(size):
        middle = [round(float(value), 5) for value in rotation @ row[:3] + center]
        rows.append([*middle, float(np.ceil(1e5 * (row[3] + 2e-5)) / 1e5)])
    return rows
