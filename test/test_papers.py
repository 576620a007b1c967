"""The tables of docs/reference/papers.md name functions and tests that exist."""

import ast
import importlib
import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
(PAGE,) = (ROOT / "docs").rglob("papers.md")
SECTIONS = {
    section.split("\n", 1)[0]: [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in section.splitlines()
        if line.startswith("| ") and not line.startswith("| equation")
    ]
    for section in PAGE.read_text().split("\n## ")[1:]
}
ROWS = [row for rows in SECTIONS.values() for row in rows]
ROMAN = {"I": "1", "II": "2", "III": "3", "IV": "4", "V": "5"}
# What is numbered in the papers: equations, theorems, lemmas, algorithms, tables, figures.
NUMBERED = {
    "SAFE-ID": {
        "": "1-46", "Theorem": "5,7,8,11,13,16,18", "Lemma": "14", "Algorithm": "1-2", "Table": "1-5", "Figure": "1-12",
    },
    "EXCITE": {
        "": "1-8,9a,9b,9c,9d,9e,9f,9g,10,11a,11b,11c,12a,12b,13a,13b", "Theorem": "1", "Table": "1", "Figure": "1-6",
    },
    "RPNA": {"": "1-99", "Theorem": "1-3", "Lemma": "1-2", "Algorithm": "1-3", "Table": "1-6", "Figure": "1-11"},
    "SVA": {"": "1-109", "Lemma": "1", "Algorithm": "1", "Figure": "1-8"},
    "SPACE": {"": "1-47", "Algorithm": "1", "Table": "2-5", "Figure": "1-4"},
}  # fmt: skip


def span(text):
    """Return the numbers of "3", "1-46" or "9a-9g"."""
    first, _, last = text.partition("-")
    if not last:
        return [first]
    if first.isdigit():
        return [str(k) for k in range(int(first), int(last) + 1)]
    return [first[:-1] + chr(k) for k in range(ord(first[-1]), ord(last[-1]) + 1)]


def numbers_of(cell):
    """Return what the first cell of a row names, as ("Figure", "5"); equations are ("", "16")."""
    found, kind, last, is_range = set(), None, None, False
    for token in re.findall(r"\(\d+[a-g]?\)|[A-Za-z]+|\d+", cell):
        number = ROMAN.get(token, token.strip("()"))
        if number[0].isdigit():
            what = "" if token.startswith("(") else kind
            found |= {(what, one) for one in span(f"{last}-{number}" if is_range else number)}
            last = number
        elif token not in ("to", "and"):
            kind = token.rstrip("s").capitalize()
        is_range = token == "to"
    return found


@pytest.mark.parametrize("paper", NUMBERED)
def test_nothing_that_is_numbered_lacks_a_row(paper):
    found = set().union(*(numbers_of(row[0]) for row in SECTIONS[paper]))
    for kind, parts in NUMBERED[paper].items():
        missing = [one for part in parts.split(",") for one in span(part) if (kind, one) not in found]
        assert not missing, f"{paper}: no row for {kind or 'equation'} {missing}"


def test_names_of_rows_are_read_right():
    assert numbers_of("(9a) to (9c), Theorem 1") == {("", "9a"), ("", "9b"), ("", "9c"), ("Theorem", "1")}
    assert numbers_of("Tables II, III, Figures 5 to 7") == {
        ("Table", "2"),
        ("Table", "3"),
        *(("Figure", k) for k in "567"),
    }
    assert ("Figure", "2") not in numbers_of("Figure 1, section 2")


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
        assert re.match(r"works\b|differs: |\*\*missing\*\*|ours\b", row[4]), row
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
