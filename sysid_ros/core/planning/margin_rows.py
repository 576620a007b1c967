"""Margins of a certificate as people read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sysid_ros.core.planning.certificate import Certificate

_TIME = re.compile(r", ([0-9.]+) s$")
"""How the place of a margin ends."""


@dataclass(frozen=True)
class MarginRow:
    """One margin of a certificate.

    Attributes:
        kind: What was checked, as in "self-collision".
        value: What is left, with its unit: shares of a limit in percent, distances in mm.
        place: Joint or links and time of it; empty where the certificate does not say.
        time: The time alone, since the start of the plan [s]; None where the certificate does not say.
        margin: The number, in the unit of the certificate.
    """

    kind: str
    value: str
    place: str
    time: float | None
    margin: float


def margin_rows(certificate: Certificate) -> tuple[MarginRow, ...]:
    """All margins of a certificate in its order."""
    rows = []
    for name, margin in certificate.margins.items():
        kind, _, unit = name.partition(" [")
        unit = unit.rstrip("]")
        if unit == "-":
            percent = 100.0 * margin
            value = f"{percent:.1f} %" if percent >= 0.1 or percent == 0.0 else f"{percent:.1g} %"
        elif unit == "m":
            value = f"{1e3 * margin:.0f} mm"
        else:
            value = f"{margin:.3g} {unit}".rstrip()
        place = certificate.places.get(name, "")
        time = _TIME.search(place)
        rows.append(MarginRow(kind, value, place, float(time[1]) if time else None, margin))
    return tuple(rows)
