"""Collision spheres for links that have meshes only; meshes are read by ``trimesh``, where it is installed."""

from __future__ import annotations

import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model.spheres import cover_box, shapes_of_links

Array = NDArray[np.float64]

_MARGIN = 1e-6
"""Largest part of a mesh outside of its oriented box by rounding, added to every radius [m]."""


@dataclass(frozen=True)
class MeshSpheres:
    """Spheres over the meshes of a URDF, and why some links have none.

    Attributes:
        spheres: Rows ``[x, y, z, radius]`` [m] in the frame of the link, for each link with spheres.
        problems: For each link whose meshes could not be covered, why.
    """

    spheres: dict[str, list[list[float]]]
    problems: dict[str, str]


def cover_meshes(urdf_text: str, urdf_path: Path) -> MeshSpheres:
    """Cover the meshes of links with the spheres of the smallest oriented box around each mesh.

    Simple shapes are ignored (:func:`~.spheres.cover_links`); paths of meshes are relative to ``urdf_path``.
    """
    spheres: dict[str, list[list[float]]] = {}
    problems: dict[str, str] = {}
    trimesh = _import_trimesh()
    for link, shapes in shapes_of_links(urdf_text).items():
        rows: list[list[float]] = []
        for shape, mesh in _meshes(shapes):
            name = mesh.get("filename", "")
            path = find_mesh(name, urdf_path)
            if trimesh is None:
                problems[link] = "trimesh is not installed, which reads meshes (pip install trimesh)"
            elif path is None:
                problems[link] = f"its mesh {name} was not found"
            else:
                try:
                    rows += _cover(trimesh, path, mesh, shape)
                except Exception as error:  # a reader of meshes has no common error for a damaged file
                    problems[link] = f"its mesh {name} cannot be read ({error})"
        if rows and link not in problems:
            spheres[link] = rows
    return MeshSpheres(spheres, problems)


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


def placement_of(shape: ET.Element) -> tuple[Array, Array]:
    """Return rotation (3, 3) and position (3,) [m] of a ``<visual>`` or ``<collision>`` in the frame of its link."""
    origin = shape.find("origin")
    attributes = {} if origin is None else origin.attrib
    xyz, rpy = (np.array([float(word) for word in (attributes.get(key) or "0 0 0").split()]) for key in ("xyz", "rpy"))
    return rotation_from_rpy(rpy), xyz


def _meshes(shapes: list[ET.Element]) -> Iterator[tuple[ET.Element, ET.Element]]:
    for shape in shapes:
        mesh = shape.find("geometry/mesh")
        if mesh is not None:
            yield shape, mesh


def _import_trimesh() -> Any:
    try:
        return import_module("trimesh")  # an extra, so that the package does not depend on it
    except ImportError:
        return None


def _cover(trimesh: Any, path: Path, mesh: ET.Element, shape: ET.Element) -> list[list[float]]:
    loaded = trimesh.load(path, force="mesh")
    points = np.asarray(loaded.vertices, dtype=float)
    if points.ndim != 2 or len(points) < 4:
        raise ValueError("it has no surface")
    scale = np.array([float(word) for word in mesh.get("scale", "1 1 1").split()])
    rotation, center, size = _smallest_box(trimesh, points * scale)
    turn, xyz = placement_of(shape)
    rows = []
    for row in cover_box(size):
        middle = turn @ (rotation @ row[:3] + center) + xyz
        rows.append([*(round(float(value), 5) for value in middle), float(np.ceil(1e5 * (row[3] + 2e-5)) / 1e5)])
    return rows


def _smallest_box(trimesh: Any, points: Array) -> tuple[Array, Array, Array]:
    """Return rotation (3, 3), centre (3,) [m] and edges (3,) [m] of a box around points (N, 3)."""
    to_origin, _ = trimesh.bounds.oriented_bounds(points)
    rotation = np.asarray(to_origin[:3, :3], dtype=float)
    # The axes are the solver's, the extent is our own: no point can be outside.
    turned = points @ rotation.T
    low, high = turned.min(axis=0) - _MARGIN, turned.max(axis=0) + _MARGIN
    return rotation.T, rotation.T @ (0.5 * (low + high)), high - low
