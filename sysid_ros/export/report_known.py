"""What the data of a run know of the payload, in words, for its report."""

from __future__ import annotations

from html import escape

import numpy as np

from sysid_ros.core.errors import SysidError
from sysid_ros.core.identifiability.data_wording import describe_data
from sysid_ros.core.identifiability.payload import PayloadIdentifiability
from sysid_ros.export.result import IdentificationResult


def known_html(result: IdentificationResult) -> str:
    """How many combinations the data determine, which they do not, and which motion would; empty without data."""
    if result.information is None or not np.any(result.information):
        return ""
    try:
        return f"<p>{escape(describe_known(result))}</p>"
    except SysidError as error:
        return f"<p>What the data know cannot be said: {escape(str(error))}.</p>"


def describe_known(result: IdentificationResult) -> str:
    """The same as plain text.

    Raises:
        ParameterOutOfRange: The information is not that of this arm.
    """
    payload = PayloadIdentifiability(result.robot, result.prior)
    box = result.estimate.box if result.is_usable and result.is_rigorous else None
    analysis = payload.analyze(result.information, box)
    samples = result.samples
    speeds = None if samples is None or not len(samples) else np.abs(samples.v).max(axis=0)
    return describe_data(analysis, payload.advise(analysis, result.information, speeds))
