"""The tables of docs/reference/papers.md name functions and tests that exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
(PAGE,) = (ROOT / "docs").rglob("papers.md")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text().partition("## SAFE-ID")[2].splitlines()
    if line.startswith("| ") and not line.startswith("| equation")
]


def resolve(name):
    """Return the object of a dotted name relative to sysid_ros."""
    parts = name.split(".")
    for count in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(["sysid_ros", *parts[:count]]))
        except ModuleNotFoundError:
            continue
        for part in parts[count:]:
            found = getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


def test_every_row_has_all_columns_and_says_what_is_missing():
    assert len(ROWS) > 40
    for row in ROWS:
        assert len(row) == 5, row
        assert row[2] or "**missing**" in row[4] or "bench/" in row[4], row


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_functions_exist(row):
    for name in re.findall(r"`([a-z_]+(?:\.\w+)+)`", row[2] + row[4]):
        assert resolve(name) is not None


@pytest.mark.parametrize("row", [row for row in ROWS if row[3]], ids=lambda row: row[1])
def test_tests_exist(row):
    for name in re.findall(r"`([^`]+)`", row[3]):
        path, _, function = name.partition("::")
        tree = ast.parse((ROOT / "test" / path).read_text())
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        assert not function or function in names, name


def test_the_papers_are_those_that_are_cited():
    cited = {reference["title"] for reference in yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]}
    named = set(re.findall(r'^\| [A-Z-]+ \| .*?"(.+?)"', PAGE.read_text(), re.M))
    assert named == cited and len(cited) == 5
