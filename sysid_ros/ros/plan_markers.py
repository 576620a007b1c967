"""Plans, their certificates and what surrounds the arm as markers."""

from __future__ import annotations

import textwrap

import numpy as np
from numpy.typing import NDArray

from sysid_ros.core.certification.certificate import Certificate, margin_rows
from sysid_ros.core.collision.scene import Scene
from sysid_ros.core.collision.swept import Nearest, SweptSpheres
from sysid_ros.ros.markers import PATH_WIDTH, MarkerBuilder

Array = NDArray[np.float64]

GROUND_SIZE, GROUND_THICKNESS = 3.0, 0.002
"""Edge and thickness of the ground as it is drawn [m]."""
SMALL_TEXT = 0.028
"""Height of the letters of tables [m]."""
TEXT_WIDTH = 60
"""Letters in a line."""
ABOVE = 0.25
"""How far above what it is about a text stands [m]."""


def draw_scene(builder: MarkerBuilder, scene: Scene, fault: str | None = None) -> None:
    """Obstacles with their names, and the ground.

    Args:
        builder: Takes the markers.
        scene: What surrounds the arm.
        fault: Why the scene is not known; None if it is. What was known last is drawn in red then.
    """
    namespace = "obstacles" if fault is None else "obstacles_unknown"
    top = 1.2
    for obstacle in scene.obstacles:
        builder.add_box(namespace, obstacle.center, 2.0 * obstacle.half_extents, obstacle.rotation)
        height = float(np.abs(obstacle.rotation[2]) @ obstacle.half_extents)
        above = obstacle.center + np.array([0.0, 0.0, height + 1.5 * SMALL_TEXT])
        builder.add_text("scene_text", above, obstacle.name, SMALL_TEXT)
        top = max(top, above[2])
    if scene.ground_height is not None:
        # Its upper surface is the ground.
        center = [0.0, 0.0, scene.ground_height - 0.5 * GROUND_THICKNESS]
        builder.add_box("ground", center, [GROUND_SIZE, GROUND_SIZE, GROUND_THICKNESS])
    if fault is not None:
        text = "SCENE NOT KNOWN, nothing is certified\n" + textwrap.fill(fault, TEXT_WIDTH)
        builder.add_text("obstacles_unknown", [0.0, 0.0, top + ABOVE], text)


def draw_plan(
    builder: MarkerBuilder, path: Array, swept: SweptSpheres | None, certificate: Certificate, title: str
) -> None:
    """Draw a plan: path of the tool, room it takes, place of the smallest distance, margins of its certificate.

    Args:
        builder: Takes the markers.
        path: Points of the tool, (N, 3) [m].
        swept: The room it takes; None leaves it out.
        certificate: Its certificate.
        title: First line of the text.
    """
    builder.add_path("plan", path)
    top = float(path[:, 2].max())
    if swept is not None and swept.centers.size:
        for column, radius in enumerate(swept.radii):
            builder.add_spheres("swept", swept.centers[:, column], float(radius))
        top = max(top, float((swept.centers[..., 2] + swept.radii).max()))
        if swept.nearest is not None:
            _draw_nearest(builder, swept.nearest)
    lines = [title, *margin_lines(certificate)]
    # The text's middle is at its position: half of its height goes above the plan.
    height = top + 0.1 + 0.5 * len(lines) * 1.3 * SMALL_TEXT
    builder.add_text("margins", [0.0, 0.0, height], "\n".join(lines), SMALL_TEXT)


def margin_lines(certificate: Certificate) -> list[str]:
    """Return what a certificate says, in lines for a picture."""
    lines = ["proven over continuous time; smallest margins:"]
    lines += [f"{row.kind}: {row.value}  ({row.place})" for row in margin_rows(certificate)]
    return lines


def _draw_nearest(builder: MarkerBuilder, nearest: Nearest) -> None:
    first, second = nearest.points
    builder.add_path("closest", np.array([first, second]))
    for point in nearest.points:
        builder.add_sphere("closest", point, 1.2 * PATH_WIDTH)
    one, other = nearest.names
    least = f"{1e3 * nearest.distance:.0f} mm apart with errors, {1e3 * nearest.clearance:.0f} mm to keep"
    text = f"closest: {one} and {other}\n{least}, {nearest.time:.2f} s"
    builder.add_text("closest_text", 0.5 * (first + second) + [0.0, 0.0, 2.5 * SMALL_TEXT], text, SMALL_TEXT)
