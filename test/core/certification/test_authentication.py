"""Keys and codes of certificates: what is signed, and which key files are used."""

import os
from dataclasses import fields, replace

import numpy as np
import pytest

from sysid_ros.core.certification import authentication
from sysid_ros.core.certification.authentication import (
    KEY_FILE_VARIABLE,
    AuthenticationKey,
    canonical_bytes,
    create_key_file,
    key_from_environment,
    load_key,
    make_run_key,
)
from sysid_ros.core.certification.certificate import Certificate, Margin
from sysid_ros.core.certification.stop_model import LimitKind
from sysid_ros.core.common.errors import SysidError
from sysid_ros.core.control.settings import ControlLaw

CERTIFICATE = Certificate(
    path_hash="a", box_hash="b", scene_hash="c", robot_hash="d", control_law=ControlLaw("law", (("gain", 2.0),)),
    nominal_payload=np.arange(10.0), predecessor=None, takeover_time=0.0, rest_before=1.0,
    tracking_bound=np.full(2, 0.1), velocity_bound=np.full(2, 0.2), torque_bound=np.full(2, 3.0),
    torque_squares=np.ones((2, 2)), torque_fraction=1.0,
    brake_time=0.5, claims="none", margins=(Margin(LimitKind.TORQUE, 0.1, "joint_1", 0.5),), issued_at=1.0,
    expires_at=2.0,
)  # fmt: skip
CHANGED = {
    "path_hash": "x", "box_hash": "x", "scene_hash": "x", "robot_hash": "x", "control_law": ControlLaw("law", ()),
    "nominal_payload": np.ones(10), "predecessor": "x", "takeover_time": 1.0, "rest_before": 2.0,
    "tracking_bound": np.full(2, 0.2), "velocity_bound": np.full(3, 0.2), "torque_bound": np.full(2, 4.0),
    "torque_squares": np.ones((3, 2)), "torque_fraction": 0.5, "brake_time": 0.6, "claims": "all", "margins": (),
    "issued_at": 0.5, "expires_at": 3.0, "is_proven_throughout": True,
}  # fmt: skip
KEY = AuthenticationKey(b"k" * 32)


@pytest.mark.parametrize("name", [entry.name for entry in fields(Certificate)])
def test_every_field_of_a_certificate_is_signed(name):
    given = KEY.authenticate(CERTIFICATE, "session")
    assert KEY.is_genuine(CERTIFICATE, given)
    assert not KEY.is_genuine(replace(CERTIFICATE, **{name: CHANGED[name]}), given)


def test_the_code_is_of_this_key_and_session():
    given = KEY.authenticate(CERTIFICATE, "session")
    assert len(given.code) == 32 and not KEY.is_genuine(CERTIFICATE, replace(given, session="another"))
    assert not AuthenticationKey(b"x" * 32).is_genuine(CERTIFICATE, given)
    assert not KEY.is_genuine(CERTIFICATE, replace(given, code=b""))


def test_texts_cannot_run_into_each_other():
    one, other = (replace(CERTIFICATE, path_hash=a, box_hash=b) for a, b in (("ab", "c"), ("a", "bc")))
    assert canonical_bytes(one) != canonical_bytes(other)


def test_a_key_shows_nothing_of_itself():
    assert "k" * 4 not in repr(KEY) and str(b"kk") not in str(KEY)
    with pytest.raises(ValueError, match="32 bytes or more, not 3"):
        AuthenticationKey(b"abc")


def test_only_files_of_this_user_alone_are_keys(tmp_path):
    path = create_key_file(tmp_path / "key")
    assert path.stat().st_mode & 0o777 == 0o600
    key = load_key(path)
    assert len(key.secret) == 32 and key != load_key(create_key_file(tmp_path / "other"))
    with pytest.raises(FileExistsError):
        create_key_file(path)
    for mode in (0o640, 0o604, 0o660, 0o666):
        path.chmod(mode)
        with pytest.raises(SysidError, match="chmod 600"):
            load_key(path)
    path.chmod(0o600)
    for text, words in (("", "64 or more hexadecimal digits"), ("zz" * 32, "hexadecimal"), ("ab" * 8, "not 8")):
        path.write_text(text)
        with pytest.raises(SysidError, match=words):
            load_key(path)
    with pytest.raises(SysidError, match="No such file.*launch file and sysid identify make a key file"):
        load_key(tmp_path / "none")


def test_a_run_uses_the_key_of_the_user_or_makes_one(monkeypatch, tmp_path):
    monkeypatch.delenv(KEY_FILE_VARIABLE, raising=False)
    assert key_from_environment() is None
    undone = []
    monkeypatch.setattr(authentication.atexit, "register", lambda *arguments, **_: undone.append(arguments))
    made = make_run_key()
    assert load_key(made) and made.parent.stat().st_mode & 0o777 == 0o700
    (remove, folder), *_ = undone
    remove(folder)
    assert not made.exists()
    own = create_key_file(tmp_path / "own")
    monkeypatch.setenv(KEY_FILE_VARIABLE, str(own))
    assert make_run_key() == own and key_from_environment() == load_key(own)
    os.chmod(own, 0o644)
    with pytest.raises(SysidError):
        make_run_key()
