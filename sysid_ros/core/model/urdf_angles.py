"""Angles of a URDF that were rounded when it was written, such as 1.5708 for a right angle."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from decimal import Decimal

from sysid_ros.core.model.urdf_checks import label

_SNAP_STEP = math.pi / 12  # rounded multiples of 15 degrees are taken for the exact angle
_SNAP_DIGITS = 3  # an angle written with fewer decimals may be meant as written
_EXACT = 1e-9  # [rad] closer than this nobody sees a rounding


def snap_angle(word: str) -> float | None:
    """The exact multiple of 15 degrees [rad] that the written angle is a rounding of, or None."""
    value = float(word)
    exact = round(value / _SNAP_STEP) * _SNAP_STEP
    decimals = -int(Decimal(word).as_tuple().exponent)
    is_rounded = decimals >= _SNAP_DIGITS and abs(value - exact) <= 0.51 * 10.0**-decimals
    # Some files truncate (3.1415) instead of rounding.
    is_truncated = decimals >= _SNAP_DIGITS + 1 and abs(value - exact) < 10.0**-decimals
    if exact == 0.0 or abs(value - exact) < _EXACT or not (is_rounded or is_truncated):
        return None
    return exact


def snap_origins(tree: ET.Element) -> list[str]:
    """Replaces rounded angles of joint and inertia origins by the exact ones, in place.

    Args:
        tree: The URDF.

    Returns:
        One sentence for each origin that was changed.
    """
    warnings = []
    for parent in tree:
        if parent.tag not in ("link", "joint"):
            continue
        path = "inertial/origin" if parent.tag == "link" else "origin"
        for origin in parent.findall(path):
            words = origin.get("rpy", "0 0 0").split()
            exact = [snap_angle(word) for word in words]
            if any(value is not None for value in exact):
                new = [word if value is None else repr(value) for word, value in zip(words, exact, strict=True)]
                origin.set("rpy", " ".join(new))
                changes = [f"{w} -> {v:.12g}" for w, v in zip(words, exact, strict=True) if v is not None]
                warnings.append(f"{label(parent)}: rounded angle taken as exact, {', '.join(changes)} rad")
    return warnings
