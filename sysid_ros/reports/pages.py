"""Turns the templates of this package into pages; whatever is put into them is escaped."""

from __future__ import annotations

from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined


def render(template: str, **values: Any) -> str:
    """Fill in a template of ``reports/templates``.

    Args:
        template: Name of its file.
        values: What it asks for, by name.
    """
    return _ENVIRONMENT.get_template(template).render(**values)


def format_number(value: float, digits: int) -> str:
    """Return a number with so many decimals, a real minus sign, and none before zeros."""
    if not np.isfinite(value):
        return "unbounded"
    return f"{round(float(value), digits) + 0.0:.{digits}f}".replace("-", "−")


def to_sentence(text: str) -> str:
    """Return a text with a capital letter, unless it begins with the name of a joint, and a full stop."""
    text = text.strip()
    is_word = text.split(" ", 1)[0].rstrip(",;:").isalpha()
    end = "" if text.endswith((".", "!", "?")) or not text else "."
    return (text[:1].upper() + text[1:] if is_word else text) + end


def square_units(text: str) -> str:
    """Return a text with its ``^2`` raised."""
    return text.replace("^2", "²")


_ENVIRONMENT = Environment(
    loader=PackageLoader("sysid_ros.reports"),
    autoescape=True,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.filters.update(number=format_number, sentence=to_sentence, squared=square_units)
