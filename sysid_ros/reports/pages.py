"""Fills in the templates of pages, with values escaped, and of files; :mod:`~sysid_ros.reports.plots` draws plots.

A script of the page reads out values of plots where the pointer is. The policy of the page allows this one script and
nothing from anywhere else.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from sysid_ros.reports.plots import short_number


def render(template: str, **values: Any) -> str:
    """Fill in a template of ``reports/templates``."""
    return _ENVIRONMENT.get_template(template).render(script=_SCRIPT, script_hash=_SCRIPT_HASH, **values)


_SCRIPT = "\n" + files("sysid_ros.reports").joinpath("templates/page.js").read_text(encoding="utf-8")
_SCRIPT_HASH = "sha256-" + base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
"""Script of every page, and by what its policy knows it."""


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
    autoescape=select_autoescape(["html"]),
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
    undefined=StrictUndefined,
)
_ENVIRONMENT.filters.update(number=format_number, sentence=to_sentence, squared=square_units, short=short_number)
