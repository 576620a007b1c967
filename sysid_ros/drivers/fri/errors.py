"""What can be wrong with a datagram."""

from __future__ import annotations

from sysid_ros.core.errors import SysidError


class FriDecodeError(SysidError):
    """A datagram that is not a usable FRI message.

    Args:
        reason: What is wrong with it.
        size: Its length [bytes].
    """

    def __init__(self, reason: str, size: int):
        self.reason = reason
        self.size = size
        super().__init__(f"datagram of {size} bytes refused: {reason}")
