"""Margins of a certificate as people read them."""

from __future__ import annotations

from dataclasses import dataclass

from sysid_ros.core.planning.certificate import Certificate


@dataclass(frozen=True)
class MarginRow:
    """One margin of a certificate.

    Attributes:
        kind: What was checked, as in "self-collision".
        value: What is left, with its unit: shares of a limit in percent, distances in mm.
        place: Joint or links and time of it; empty where the certificate does not say.
    """

    kind: str
    value: str
    place: str


def margin_rows(certificate: Certificate) -> tuple[MarginRow, ...]:
    """All margins of a certificate in its order."""
    rows = []
    for name, margin in certificate.margins.items():
        kind, _, unit = name.partition(" [")
        unit = unit.rstrip("]")
        if unit == "-":
            value = f"{100.0 * margin:.1f} %"
        elif unit == "m":
            value = f"{1e3 * margin:.0f} mm"
        else:
            value = f"{margin:.3g} {unit}".rstrip()
        rows.append(MarginRow(kind, value, certificate.places.get(name, "")))
    return tuple(rows)
