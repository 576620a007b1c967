"""Signed messages between nodes of the suite: with the key, a receiver detects any forged or changed message."""

from __future__ import annotations

import hmac
import struct
from typing import Any

import numpy as np

from sysid_msgs.msg import ParameterEstimate
from sysid_ros.core.certification.authentication import AuthenticationKey, NotAuthentic

_NUMBERS = {
    "boolean": "u1", "uint8": "u1", "uint16": "<u2", "uint32": "<u4", "uint64": "<u8", "int32": "<i4", "int64": "<i8",
    "double": "<f8",
}  # fmt: skip
_CODE = "authentication"
"""Field with the code, which covers all other fields."""


def sign(message: Any, key: AuthenticationKey) -> None:
    """Fill in the code of a message with a field ``authentication``; nothing else may change after that."""
    message.authentication = list(_code_of(message, key))


def is_genuine(message: Any, key: AuthenticationKey) -> bool:
    """Return whether a message, in all its fields, was signed with this key."""
    return hmac.compare_digest(_code_of(message, key), bytes(message.authentication))


def require_authentic(estimate: ParameterEstimate, key: AuthenticationKey, session: str, payload_epoch: int) -> None:
    """Check that the suite itself has made an estimate, and of the payload that the arm holds now.

    Args:
        estimate: The estimate.
        key: Key of the suite.
        session: Session of the driver.
        payload_epoch: Number of the payload, as the driver counts them.

    Raises:
        NotAuthentic: It has not, or it was about another payload.
    """
    if not estimate.authentication:
        text = "it has no authentication code; driver, estimator and identification need the same key"
        raise NotAuthentic("estimate", text)
    if not is_genuine(estimate, key):
        raise NotAuthentic("estimate", "its authentication code is not of this key and these fields")
    if not session or estimate.session != session:
        now = session[:12] or "none"
        text = f"it is of session {estimate.session[:12]} of the driver, now is {now}; identify again"
        raise NotAuthentic("estimate", text, is_replayed=True)
    if estimate.payload_epoch != payload_epoch:
        text = f"it is of payload number {estimate.payload_epoch}, the arm holds number {payload_epoch}; identify again"
        raise NotAuthentic("estimate", text, is_replayed=True)


def _code_of(message: Any, key: AuthenticationKey) -> bytes:
    return key.code(type(message).__name__, _packed(message))


def _packed(message: Any) -> bytes:
    """Return all fields but the code as bytes, the same on every machine, each with its length."""
    parts = []
    for name, kind in message.get_fields_and_field_types().items():
        if name == _CODE:
            continue
        value, base = getattr(message, name), kind.removeprefix("sequence<").removesuffix(">").partition("[")[0]
        if base in _NUMBERS:
            part = np.asarray(value, _NUMBERS[base]).tobytes()
        else:
            several = value if base != kind else [value]
            part = b"".join(map(_prefixed, (_packed(one) if base != "string" else one.encode() for one in several)))
        parts.append(_prefixed(part))
    return b"".join(parts)


def _prefixed(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data
