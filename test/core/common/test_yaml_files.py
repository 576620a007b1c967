"""YAML as untrusted input: bombs are refused before anything is built of them, and every reader of files says so."""

import time

import pytest

from sysid_ros.core.common.errors import ModelError
from sysid_ros.core.common.yaml_files import DEEPEST, MOST_BYTES, MOST_NODES, parse_yaml, read_yaml

LEVELS = "abcdefghij"
ALIASES = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip(LEVELS, LEVELS[1:], strict=False)
)
MERGES = "a: &a {x: 1, y: 2}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 10)}]}}\n"
    for before, name in zip(LEVELS, LEVELS[1:], strict=False)
)
DEEP = "a: " + "[" * 100_000
BOMBS = {
    "aliases": (ALIASES, f"more than {MOST_NODES} entries"),
    "merges": (MERGES, f"more than {MOST_NODES} entries"),
    "depth": (DEEP, f"more than {DEEPEST} collections are within each other"),
    "depth of blocks": ("".join(" " * i + "a:\n" for i in range(1000)), "within each other"),
    "itself": ("a: &a [*a]", "the alias *a is within its own anchor"),
    "size": ("# " + "x" * MOST_BYTES, "larger than 4 MiB"),
    "object": ("a: !!python/object/apply:os.getcwd []", "could not determine a constructor"),
    "date": ("a: 2026-99-99", "month must be in 1..12"),
    "two documents": ("a: 1\n---\nb: 2\n", "expected a single document"),
    "unknown alias": ("a: *b", "undefined alias"),
    "no YAML": ("a: [1, 2", "expected ',' or ']'"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_what_no_person_writes_is_refused_at_once(name, tmp_path):
    text, reason = BOMBS[name]
    started = time.process_time()
    with pytest.raises(ModelError, match="cannot read the file: ") as refused:
        parse_yaml(text, "the file")
    assert reason in str(refused.value)
    assert time.process_time() - started < 5.0  # built and walked, the aliases take minutes
    (tmp_path / "file.yaml").write_text(text)
    with pytest.raises(ModelError) as refused:
        read_yaml(tmp_path / "file.yaml")
    assert reason in str(refused.value)


def test_what_a_person_writes_is_read(tmp_path):
    text = "base: &base {mass: 1.5, com: [0, 0, 0.1]}\nheavy: {<<: *base, mass: 3}\nsame: *base\n"
    read = parse_yaml(text, "a file")
    assert read["heavy"] == {"mass": 3, "com": [0, 0, 0.1]} and read["same"] is read["base"]
    assert parse_yaml("", "an empty file") is None
    assert parse_yaml("[" * DEEPEST + "]" * DEEPEST, "as deep as is allowed")
    numbers = tmp_path / "numbers.yaml"
    numbers.write_text("[" + ", ".join(["0.12345678"] * 200_000) + "]")
    assert len(read_yaml(numbers)) == 200_000


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff\xfe\xfd")
    for path, reason in (
        (tmp_path / "none.yaml", "there is no such file"),
        (tmp_path, "it is not a file"),
        ("/dev/zero", "it is not a file"),
        (tmp_path / "bytes.yaml", "no text in UTF-8"),
    ):
        with pytest.raises(ModelError, match=reason) as refused:
            read_yaml(path)
        assert str(path) in str(refused.value)
