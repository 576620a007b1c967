"""The whole project passes the linter with the rules of pyproject.toml."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_ruff_finds_nothing():
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed (requirements-test.txt)")
    result = subprocess.run(
        [ruff, "check", "--output-format", "concise", "."], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout


def test_the_linter_is_awake(tmp_path):
    """With an unused import and a line that is too long it finds two faults."""
    ruff = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if ruff is None:
        pytest.skip("ruff is not installed (requirements-test.txt)")
    path = tmp_path / "bad.py"
    path.write_text('"""Docs."""\nimport os\n' + "x = " + " + ".join(["1"] * 60) + "\n")
    command = [ruff, "check", "--config", str(ROOT / "pyproject.toml"), "--output-format", "concise", str(path)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert "F401" in result.stdout
    assert "E501" in result.stdout


# Clauses as nouns, machines as persons, words of the left column under "Writing" in docs/reference/glossary.md.
UNIDIOMATIC = re.compile(
    r"\bwhat (?:is|are|was|were|has|have|had|it|they|the|a|an|no|holds|happens|happened|belongs|others)\b"
    r"|\b(?:that|those) of\b|\bthose (?:that|which|who|in|for|with|before)\b"
    r"|\b(?:is|are|was|were|be|been) (?:told|heard|believed)\b|(?<![.\w])tells?\b(?!\()|\bhears?\b"
    r"|\bwhoever\b|\bnobody\b|\bsomebody\b|\blooked at\b|\bas long as there\b|\bprogrammes?\b"
)
FOUND = 415  # may only fall


def count_unidiomatic(root=ROOT):
    """Count unidiomatic phrases by file, of the package and of the pages."""
    paths = [*(root / "sysid_ros").rglob("*.py"), *(root / "docs").rglob("*.md"), root / "README.md"]
    paths.remove(root / "docs" / "reference" / "glossary.md")  # lists them
    return {path.relative_to(root): len(UNIDIOMATIC.findall(path.read_text())) for path in paths}


def test_english_only_gets_plainer():
    counts = count_unidiomatic()
    worst = sorted(counts.items(), key=lambda item: -item[1])[:10]
    assert sum(counts.values()) <= FOUND, f"{sum(counts.values())} unidiomatic phrases, most in {worst}"


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        ("what stops go on from was looked at", "the tube that stops start from was tested"),
        ("those of the errors", "error terms"),
        ("the planner is told of the box", "the planner receives the box"),
        ("linear programme", "linear program"),
        ("nobody hears the driver", "no message from the driver"),
    ],
)
def test_unidiomatic_phrases_are_found(bad, good):
    assert UNIDIOMATIC.search(bad) and not UNIDIOMATIC.search(good)
