"""Shapes for self-collision constraints: points of a tool from its convex hull, and ellipsoids around links.

Points come from a mesh or from the simple shapes of a URDF. Their convex hull is reduced to the means of a Gaussian
mixture; spheres about these means that cover its whole surface make a tool that the verifier can prove.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from sysid_ros.core.collision.clearance import CollisionModel
from sysid_ros.core.common.errors import ModelError, ParameterOutOfRange
from sysid_ros.core.common.spatial import rotation_from_rpy
from sysid_ros.core.model.robot import RobotModel, Sphere
from sysid_ros.core.model.spheres import shapes_of_links

Array = NDArray[np.float64]

_EDGES = 16
"""Corners of the prism around a cylinder, and meridians of the body around a sphere."""
_STL_HEADER, _STL_TRIANGLE = 84, 50
_EM_ROUNDS, _EM_SETTLED = 200, 1e-6
_SMALLEST_SPREAD = 0.01
"""Least standard deviation of a component, as a share of the extent of the points."""
_SHORTEST_EDGE = 0.15
"""Triangles are divided until their edges are below this share of the extent of the hull."""


class InvalidTool(ModelError):
    """A tool whose shape cannot be used.

    Args:
        source: File or link.
        problem: What is wrong and what is expected.
    """

    def __init__(self, source: str, problem: str):
        self.source = source
        super().__init__(f"tool '{source}': {problem}")


@dataclass(frozen=True)
class ToolShape:
    """A tool as spheres about the means of a Gaussian mixture.

    Attributes:
        points: Means of the mixture, the paper's feature points, in the frame of the tool, (K, 3) [m].
        radii: Radii about them that together cover the surface of the convex hull, (K,) [m].
        vertices: Vertices of the convex hull, (V, 3) [m].
    """

    points: Array
    radii: Array
    vertices: Array

    def spheres(self, robot: RobotModel, placement: tuple[Array, Array]) -> tuple[Sphere, ...]:
        """Return the spheres as those of what the robot carries.

        Args:
            robot: The arm.
            placement: Rotation (3, 3) and origin (3,) [m] of the tool in the frame of the last joint, as
                ``frame_placement`` gives it.
        """
        rotation, origin = placement
        centers = self.points @ np.asarray(rotation).T + origin
        return tuple(Sphere(robot.n, c, float(r), "tool") for c, r in zip(centers, self.radii, strict=True))


def read_mesh_points(path: str | Path, scale: float = 1.0) -> Array:
    """Read the vertices of a mesh, (V, 3) [m].

    Args:
        path: An STL (binary or text) or OBJ file.
        scale: Length of its unit [m].

    Raises:
        InvalidTool: The file is of another kind, cut off, or holds no finite vertices.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise InvalidTool(str(path), f"cannot be read: {error}") from error
    kind = file.suffix.lower()
    if kind not in (".stl", ".obj"):
        raise InvalidTool(str(path), f"'{file.suffix}' is not a known kind of mesh; use .stl or .obj")
    count = int.from_bytes(data[_STL_HEADER - 4 : _STL_HEADER], "little")
    if kind == ".stl" and len(data) == _STL_HEADER + _STL_TRIANGLE * count:
        rows = np.frombuffer(data, dtype=np.uint8, offset=_STL_HEADER).reshape(count, _STL_TRIANGLE)[:, 12:48]
        points = np.ascontiguousarray(rows).view("<f4").reshape(-1, 3).astype(float)
    else:
        word = "v" if kind == ".obj" else "vertex"
        lines = (line.split() for line in data.decode("utf-8", errors="replace").splitlines())
        try:
            points = np.array([[float(x) for x in parts[1:4]] for parts in lines if parts and parts[0] == word])
        except ValueError as error:
            raise InvalidTool(str(path), f"a vertex is not three numbers: {error}") from error
    if points.ndim != 2 or points.shape[1:] != (3,) or not np.isfinite(points).all():
        raise InvalidTool(str(path), "holds no vertices, or one that is not finite; the file may be cut off")
    return scale * points


def read_urdf_points(urdf_text: str, link: str, directory: str | Path = ".") -> Array:
    """Read points whose convex hull contains the shapes of a link, in its frame, (V, 3) [m].

    Args:
        urdf_text: The URDF.
        link: Name of the link. Its collision shapes count, or its visual ones where it has none.
        directory: Where file names of meshes begin; ``package://`` and ``file://`` are taken off.

    Raises:
        InvalidTool: There is no such link, it has no shapes, or a mesh cannot be read.
    """
    links = shapes_of_links(urdf_text)
    if link not in links:
        raise InvalidTool(link, f"the URDF has no such link; it has {', '.join(links)}")
    parts = [_shape_points(shape, Path(directory), link) for shape in links[link]]
    if not parts:
        raise InvalidTool(link, "has no shapes")
    return np.concatenate(parts)


def _shape_points(shape: ET.Element, directory: Path, link: str) -> Array:
    origin, geometry = shape.find("origin"), shape.find("geometry")
    attributes = {} if origin is None else origin.attrib
    center, rpy = (np.array([float(word) for word in attributes.get(key, "0 0 0").split()]) for key in ("xyz", "rpy"))
    form = geometry[0] if geometry is not None and len(geometry) else None
    tag = "nothing" if form is None else form.tag
    if form is None or tag not in ("sphere", "cylinder", "box", "mesh"):
        raise InvalidTool(link, f"a shape is '{tag}'; allowed are sphere, cylinder, box and mesh")
    angles = 2.0 * np.pi * np.arange(_EDGES) / _EDGES
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=1) / np.cos(np.pi / _EDGES)
    if tag == "mesh":
        name = form.get("filename", "").removeprefix("package://").removeprefix("file://")
        points = read_mesh_points(directory / name)
        points = points * np.array([float(word) for word in form.get("scale", "1 1 1").split()])
    elif tag == "box":
        size = np.array([float(word) for word in form.get("size", "").split()])
        points = 0.5 * size * np.array(np.meshgrid(*[[-1.0, 1.0]] * 3)).reshape(3, -1).T
    elif tag == "cylinder":
        height, rim = 0.5 * float(form.get("length", "0")), float(form.get("radius", "0")) * circle
        points = np.concatenate([np.column_stack([rim, np.full(_EDGES, z)]) for z in (-height, height)])
    else:
        # Prisms around circles of latitude whose corners lie outside of the sphere by the same factor twice.
        latitudes = np.pi * (np.arange(_EDGES // 2 + 1) / (_EDGES // 2) - 0.5)
        rings = [np.column_stack([np.cos(one) * circle, np.full(_EDGES, np.sin(one))]) for one in latitudes]
        points = float(form.get("radius", "0")) / np.cos(np.pi / _EDGES) * np.concatenate(rings)
    placed: Array = points @ rotation_from_rpy(rpy).T + center
    return placed


def reduce_tool(points: Array, most: int = 12, seed: int = 0, source: str = "points") -> ToolShape:
    """Reduce a tool to the means of a Gaussian mixture of its convex hull, with radii that cover the hull.

    The paper takes the number of components with the largest likelihood, which always grows with their number; the
    Bayesian information criterion decides here.

    Args:
        points: Points of the tool, (V, 3) [m].
        most: Largest number of components.
        seed: Seed of the starts.
        source: Name of the tool for errors.

    Raises:
        InvalidTool: The points span no volume.
        ParameterOutOfRange: ``most`` is below 1.

    Source: EXCITE (10).
    """
    if most < 1:
        raise ParameterOutOfRange("most", most, "1 or more components")
    try:
        hull = ConvexHull(points)
    except (QhullError, ValueError) as error:
        raise InvalidTool(source, f"{len(points)} points span no volume") from error
    triangles = _divide(points[hull.simplices], _SHORTEST_EDGE * float(np.ptp(points, axis=0).max()))
    samples = np.unique(triangles.reshape(-1, 3).round(9), axis=0)
    rng = np.random.default_rng(seed)
    fits = [_fit_mixture(samples, count, rng) for count in range(1, min(most, len(samples) // 4 or 1) + 1)]
    means = min(fits, key=lambda fit: fit[1])[0]
    # A ball is convex: it contains a triangle if it contains its corners.
    farthest = np.linalg.norm(triangles[:, :, None] - means, axis=-1).max(axis=1)  # (triangles, K)
    nearest = farthest.argmin(axis=1)
    used = np.unique(nearest)
    radii = np.array([farthest[nearest == k, k].max() for k in used])
    return ToolShape(means[used], np.nextafter(radii * (1.0 + 1e-9), np.inf), points[hull.vertices])


def _divide(triangles: Array, longest: float) -> Array:
    """Divide triangles (T, 3, 3) until no edge is longer than ``longest``."""
    done = []
    while len(triangles):
        a, b, c = triangles.swapaxes(0, 1)
        edges = np.stack([np.linalg.norm(x - y, axis=1) for x, y in ((a, b), (b, c), (c, a))])
        is_small = edges.max(axis=0) <= longest
        done.append(triangles[is_small])
        a, b, c = triangles[~is_small].swapaxes(0, 1)
        ab, bc, ca = 0.5 * (a + b), 0.5 * (b + c), 0.5 * (c + a)
        parts = ((a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca))
        triangles = np.concatenate([np.stack(part, axis=1) for part in parts])
    return np.concatenate(done)


def _fit_mixture(points: Array, count: int, rng: np.random.Generator) -> tuple[Array, float]:
    """Fit a Gaussian mixture by expectation and maximisation; return its means (K, 3) and its BIC."""
    total, dimension = points.shape
    floor = (_SMALLEST_SPREAD * np.ptp(points, axis=0).max()) ** 2 * np.eye(dimension)
    means = points[rng.integers(total)][None]
    for _ in range(count - 1):  # each next start far from those before, as in k-means++
        gap = ((points[:, None] - means) ** 2).sum(axis=-1).min(axis=1)
        means = np.vstack([means, points[rng.choice(total, p=gap / gap.sum())]])
    covariances = np.repeat((np.cov(points.T) / count ** (2.0 / 3.0) + floor)[None], count, axis=0)
    weights, before = np.full(count, 1.0 / count), -np.inf
    for _ in range(_EM_ROUNDS):
        offset = points[:, None] - means  # (N, K, 3)
        size = np.einsum("nki,kij,nkj->nk", offset, np.linalg.inv(covariances), offset)
        logs = np.log(weights) - 0.5 * (size + np.linalg.slogdet(2.0 * np.pi * covariances)[1])
        highest = logs.max(axis=1, keepdims=True)
        likelihood = highest[:, 0] + np.log(np.exp(logs - highest).sum(axis=1))
        share = np.exp(logs - likelihood[:, None])
        mass = share.sum(axis=0) + 1e-12
        weights, means = mass / mass.sum(), share.T @ points / mass[:, None]
        offset = points[:, None] - means
        covariances = np.einsum("nk,nki,nkj->kij", share, offset, offset) / mass[:, None, None] + floor
        now = float(likelihood.sum())
        if now - before < _EM_SETTLED * abs(now):
            break
        before = now
    numbers = count * (1 + dimension + dimension * (dimension + 1) // 2) - 1
    return means, numbers * math.log(total) - 2.0 * now


@dataclass(frozen=True)
class LinkEllipsoid:
    """An ellipsoid ``(x - center)^T matrix (x - center) <= 1`` fixed to a body (0 = base), along the axes of its frame.

    Attributes:
        body: Body, 0..n.
        center: Centre in its frame, (3,) [m].
        half_axes: Half axes, (3,) [m].
    """

    body: int
    center: Array
    half_axes: Array

    @property
    def matrix(self) -> Array:
        """Diagonal matrix A of EXCITE (11b), (3, 3) [1/m^2]."""
        return np.diag(self.half_axes**-2.0)

    @classmethod
    def around(cls, spheres: Sequence[Sphere]) -> LinkEllipsoid:
        """Enclose spheres of one body, with the proportions of their bounding box and up to 1 % to spare."""
        centers, radii = np.array([s.center for s in spheres]), np.array([s.radius for s in spheres])
        lower, upper = (centers - radii[:, None]).min(axis=0), (centers + radii[:, None]).max(axis=0)
        center, half = 0.5 * (lower + upper), 0.5 * (upper - lower)
        # Points spread evenly over a unit sphere, no direction further than 0.1 rad from one of them.
        k = np.arange(2000) + 0.5
        z, turn = 1.0 - 2.0 * k / k.size, np.pi * (1.0 + math.sqrt(5.0)) * k
        flat = np.sqrt(1.0 - z**2)
        directions = np.column_stack([flat * np.cos(turn), flat * np.sin(turn), z])
        surface = centers[:, None] + 1.005 * radii[:, None, None] * directions
        size = np.linalg.norm((surface - center) / half, axis=-1).max()
        return cls(spheres[0].body, center, size * half)

    def enlarged(self, radius: float) -> LinkEllipsoid:
        """Enclose all points within a distance [m] of the ellipsoid.

        The half axes squared are ``(1 + 1/p) a^2 + (1 + p) r^2``, which contains the sum of ellipsoid and ball for any
        p > 0; the p that makes the sum of their squares smallest is taken.
        """
        if radius <= 0.0:
            return self
        p = math.sqrt(float((self.half_axes**2).sum()) / (3.0 * radius**2))
        return LinkEllipsoid(
            self.body, self.center, np.sqrt((1.0 + 1.0 / p) * self.half_axes**2 + (1.0 + p) * radius**2)
        )


@dataclass(frozen=True)
class VirtualShapes:
    """Shapes of the paper's self-collision constraints.

    Attributes:
        points: Points of the tool, fixed to the last body, (K, 3) [m].
        ellipsoids: Ellipsoids around the links the tool could reach, enlarged by what the points stand for.
    """

    points: Array
    ellipsoids: tuple[LinkEllipsoid, ...]

    @classmethod
    def of(cls, robot: RobotModel, collision: CollisionModel, clearance: float) -> VirtualShapes:
        """Build them from the spheres of a collision model: those of the last body are the tool.

        Args:
            robot: The arm.
            collision: Spheres and pairs; only links that are compared with the last body get an ellipsoid.
            clearance: Distance to keep [m].
        """
        spheres = collision.spheres
        pairs = [(i, j) for i, j in collision.pairs if spheres[j].body == robot.n]
        tool = sorted({int(j) for _, j in pairs})
        largest = max((spheres[j].radius for j in tool), default=0.0)
        links = sorted({(spheres[i].body, spheres[i].link) for i, _ in pairs})
        ellipsoids = [
            LinkEllipsoid.around([s for s in spheres if (s.body, s.link) == one]).enlarged(largest + clearance)
            for one in links
        ]
        points = np.array([spheres[j].center for j in tool], dtype=float).reshape(-1, 3)
        return cls(points, tuple(ellipsoids))
