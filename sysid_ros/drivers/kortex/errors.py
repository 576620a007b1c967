"""What can go wrong between client and base."""

from __future__ import annotations

from enum import IntEnum

from sysid_ros.core.errors import SysidError
from sysid_ros.drivers.arm import ArmError
from sysid_ros.drivers.kortex.enums import ErrorCode, SubError


class KortexDecodeError(SysidError):
    """Bytes that are not a usable Kortex frame or message.

    Args:
        reason: What is wrong with them.
        size: Their number [bytes].
    """

    def __init__(self, reason: str, size: int):
        self.reason = reason
        self.size = size
        super().__init__(f"{size} bytes refused: {reason}")


class KortexServerError(ArmError):
    """The base answers a request with an error.

    Args:
        call: What was asked.
        code: Where the error comes from.
        sub_code: What went wrong.
        text: What the base says about it.
    """

    def __init__(self, call: str, code: int, sub_code: int, text: str = ""):
        self.call = call
        self.code, self.sub_code = code, sub_code
        self.text = text
        names = f"{_name(ErrorCode, code)}, {_name(SubError, sub_code)}"
        super().__init__(f"{call} was refused by the base: {names}{f' ({text})' if text else ''}")


class KortexConnectionLost(ArmError):
    """The connection to the base is gone, or was never there.

    Args:
        reason: What happened.
    """

    def __init__(self, reason: str):
        self.reason = reason
        super().__init__(f"no connection to the base: {reason}")


def _name(kind: type[IntEnum], value: int) -> str:
    try:
        return kind(value).name
    except ValueError:
        return f"{kind.__name__} {value}"
