"""Authentication of certificates and messages: a code over their bytes, with a key of the nodes of one suite."""

from __future__ import annotations

import atexit
import hashlib
import hmac
import os
import secrets
import shutil
import stat
import struct
import tempfile
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from sysid_ros.core.certification.certificate import Certificate
from sysid_ros.core.common.errors import SysidError

KEY_FILE_VARIABLE = "SYSID_ROS_KEY_FILE"
"""Environment variable with the path of the key file."""
_KEY_BYTES = 32
_CERTIFICATE = "certificate 1"


class NotAuthentic(SysidError):
    """Something from outside this suite, or for another session or payload (``is_replayed``); with fault and remedy."""

    def __init__(self, what: str, reason: str, is_replayed: bool = False):
        self.what, self.reason, self.is_replayed = what, reason, is_replayed
        super().__init__(f"the {what} does not count: {reason}")


@dataclass(frozen=True)
class Authentication:
    """Authentication of a certificate by a planner, for the driver.

    Attributes:
        session: Session of the driver that the certificate is for; empty if none was known.
        code: HMAC-SHA256 over session and certificate; empty without a key.
    """

    session: str = ""
    code: bytes = b""


@dataclass(frozen=True)
class AuthenticationKey:
    """A secret that nodes of a suite share; it never leaves their processes.

    Attributes:
        secret: Its bytes.

    Raises:
        ValueError: There are fewer bytes than the code has.
    """

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.secret) < _KEY_BYTES:
            raise ValueError(f"a key has {_KEY_BYTES} bytes or more, not {len(self.secret)}")

    def authenticate(self, certificate: Certificate, session: str) -> Authentication:
        """Return the code of a certificate for one session of a driver."""
        return Authentication(session, self._code(certificate, session))

    def is_genuine(self, certificate: Certificate, given: Authentication) -> bool:
        """Return whether a code was made with this key for this certificate and its session; takes constant time."""
        return hmac.compare_digest(self._code(certificate, given.session), given.code)

    def code(self, kind: str, content: bytes) -> bytes:
        """Return the HMAC-SHA256 of some bytes as an object of a kind; other kinds have other codes."""
        return hmac.new(self.secret, _packed(f"sysid_ros {kind}") + content, hashlib.sha256).digest()

    def _code(self, certificate: Certificate, session: str) -> bytes:
        return self.code(_CERTIFICATE, _packed(session) + canonical_bytes(certificate))


def canonical_bytes(certificate: Certificate) -> bytes:
    """Return all fields of a certificate as bytes, the same on every machine: texts and numbers with their lengths."""
    parts = []
    for entry in fields(certificate):
        value = getattr(certificate, entry.name)
        if entry.name == "control_law":
            value = (value.name, *(part for setting in value.settings for part in setting))
        elif entry.name == "margins":
            value = tuple(part for one in value for part in (one.limit.value, one.value, one.place, one.time))
        parts.append(_packed(value))
    return b"".join(parts)


def certificate_digest(certificate: Certificate) -> bytes:
    """Return the sha256 of all fields of a certificate: equal for equal certificates only."""
    return hashlib.sha256(canonical_bytes(certificate)).digest()


def _packed(value: object) -> bytes:
    if value is None:
        return b"n"
    if isinstance(value, str):
        text = value.encode()
        return b"t" + struct.pack("<Q", len(text)) + text
    if isinstance(value, np.ndarray):
        numbers = np.ascontiguousarray(value, dtype="<f8").ravel()
        return b"a" + struct.pack("<Q", numbers.size) + numbers.tobytes()
    if isinstance(value, tuple):
        return b"l" + struct.pack("<Q", len(value)) + b"".join(map(_packed, value))
    return b"f" + struct.pack("<d", value)


def create_key_file(path: Path) -> Path:
    """Write a new random key that its owner alone can read; return the path.

    Raises:
        FileExistsError: There is a file already.
    """
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(_KEY_BYTES) + "\n")
    return path


def read_secret(path: Path) -> str:
    """Return the text of a file that only this user may read, without surrounding white space.

    Raises:
        SysidError: It is missing, no text, or others may read or write it.
    """
    try:
        with path.open() as file:
            status = os.fstat(file.fileno())
            text = file.read(4096).strip()
    except OSError as error:
        raise SysidError(f"the file {path} cannot be used", error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise SysidError(f"the file {path} cannot be used", "it is not text") from error
    if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o077 or status.st_uid not in (os.getuid(), 0):
        raise SysidError(
            f"the file {path} cannot be used", "it must be a file of this user that others cannot read: chmod 600"
        )
    return text


def load_key(path: Path) -> AuthenticationKey:
    """Read a key file.

    Raises:
        SysidError: It is missing, others may read or write it, or it holds no key.
    """
    try:
        text = read_secret(path)
    except SysidError as error:
        if path.exists():
            raise
        raise SysidError(f"{error}; the launch file and sysid identify make a key file") from error
    try:
        return AuthenticationKey(bytes.fromhex(text))
    except ValueError as error:
        text = f"it must hold {2 * _KEY_BYTES} or more hexadecimal digits ({error})"
        raise SysidError(f"the key file {path} cannot be used", text) from error


def make_run_key() -> Path:
    """Return the key file for the processes of a run: the user's, or one that is deleted at the end of this process."""
    given = os.environ.get(KEY_FILE_VARIABLE, "")
    if given:
        path = Path(given).expanduser().absolute()
        load_key(path)
        return path
    folder = Path(tempfile.mkdtemp(prefix="sysid_ros_"))  # of this user alone
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return create_key_file(folder / "key")


def key_from_environment() -> AuthenticationKey | None:
    """Return the key in the file ``SYSID_ROS_KEY_FILE``; None without this variable.

    Raises:
        SysidError: The file cannot be used.
    """
    name = os.environ.get(KEY_FILE_VARIABLE, "")
    return load_key(Path(name).expanduser()) if name else None
