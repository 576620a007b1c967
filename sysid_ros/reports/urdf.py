"""Adds an identified payload to a robot description."""

from __future__ import annotations

from xml.etree import ElementTree

import numpy as np
import pinocchio as pin
from numpy.typing import ArrayLike
from urdf_parser_py.urdf import URDF

from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.model import inertia

PAYLOAD_LINK = "identified_payload"

_SNIPPET = """
  <!-- {comment} -->
  <link name="{link}">
    <inertial>
      <origin xyz="{com}" rpy="0 0 0"/>
      <mass value="{mass}"/>
      <inertia ixx="{ixx}" ixy="{ixy}" ixz="{ixz}" iyy="{iyy}" iyz="{iyz}" izz="{izz}"/>
    </inertial>
  </link>
  <joint name="{link}_joint" type="fixed">
    <parent link="{parent}"/>
    <child link="{link}"/>
    <origin xyz="0 0 0" rpy="0 0 0"/>
  </joint>
"""


class UrdfExportError(SysidError):
    """A payload cannot be added to a robot description.

    Args:
        reason: Why, in a sentence.
    """

    def __init__(self, reason: str):
        super().__init__(f"cannot write the payload into the URDF: {reason}")


def add_payload(urdf: str, parent: str, payload: ArrayLike, link: str = PAYLOAD_LINK, comment: str = "") -> str:
    """Add a payload as a link fixed to another; everything else stays as it is, byte for byte.

    Args:
        urdf: Robot description.
        parent: Link the payload is fixed to; the frames coincide.
        payload: Ten parameters about the frame of ``parent``, (10,).
        link: Name of the new link; its joint is called ``<link>_joint``.
        comment: One line for the reader of the file.

    Raises:
        NotPhysicallyConsistent: No body can have these parameters.
        UrdfExportError: The description is not XML, has no such parent or has the new names already; or what was
            written does not read back as the same payload.
    """
    inertia.require_physically_consistent(payload, link)
    _require_names(urdf, parent, link)
    mass, com, inertia_com = inertia.to_com_form(payload)
    snippet = _SNIPPET.format(
        comment=comment.replace("--", "- -") or "identified payload",
        link=link,
        parent=parent,
        mass=repr(float(mass)),
        com=" ".join(repr(float(value)) for value in com),
        **{f"i{a}{b}": repr(float(inertia_com[i, j])) for (a, i), (b, j) in _upper_triangle()},
    )
    position = urdf.rindex("</robot>")
    text = urdf[:position].rstrip() + "\n" + snippet + urdf[position:]
    _require_reads_back(text, link, np.asarray(payload, dtype=float))
    return text


def _upper_triangle() -> list[tuple[tuple[str, int], tuple[str, int]]]:
    axes = [("x", 0), ("y", 1), ("z", 2)]
    return [(axes[i], axes[j]) for i in range(3) for j in range(i, 3)]


def _require_names(urdf: str, parent: str, link: str) -> None:
    try:
        root = ElementTree.fromstring(urdf)
    except ElementTree.ParseError as error:
        raise UrdfExportError(f"the robot description is not XML ({error})") from error
    links = [element.get("name") for element in root.findall("link")]
    if parent not in links:
        raise UrdfExportError(f"link '{parent}' is unknown; there are {', '.join(map(str, links))}")
    if link in links:
        raise UrdfExportError(f"it has a link '{link}' already; choose another name")
    if any(element.get("name") == f"{link}_joint" for element in root.findall("joint")):
        raise UrdfExportError(f"it has a joint '{link}_joint' already; choose another name")


def _without_geometry(text: str) -> str:
    """Remove the shapes of a description: urdf_parser_py complains about every tag it does not know in them."""
    root = ElementTree.fromstring(text)
    for link in root.findall("link"):
        for element in [*link.findall("visual"), *link.findall("collision")]:
            link.remove(element)
    return ElementTree.tostring(root, encoding="unicode")


def _require_reads_back(text: str, link: str, payload: np.ndarray) -> None:
    """Both readers this project relies on must see the payload that was asked for."""
    read = URDF.from_xml_string(_without_geometry(text)).link_map[link].inertial
    theta = inertia.from_com_form(read.mass, read.origin.xyz, np.array(read.inertia.to_matrix()))
    model = pin.buildModelFromXML(text)
    frame = model.frames[model.getFrameId(f"{link}_joint")]
    for seen in (theta, frame.inertia.toDynamicParameters()):
        if not np.allclose(seen, payload, rtol=1e-9, atol=1e-12):
            raise UrdfExportError(f"it reads back as {seen.tolist()} instead of {payload.tolist()}")
