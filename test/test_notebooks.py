"""The notebooks of the examples run from top to bottom, and are kept without outputs."""

import json
import sys
from pathlib import Path

import matplotlib
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SAYS = {
    "your_own_bag.ipynb": ["usable: True - guaranteed: True", "payload_ur.script"],
    "bounds_and_alarms.ipynb": ["10 of 10 true parameters are inside", "usable: False", "the sign of the efforts"],
    "what_can_be_known.ipynb": ["36 base parameters", "The data determine all 10 combinations", "move more joints"],
}


def cells(name):
    return json.loads((EXAMPLES / name).read_text(encoding="utf-8"))["cells"]


def test_every_notebook_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.ipynb")} == set(SAYS)


@pytest.mark.parametrize("name", SAYS)
def test_notebooks_are_kept_without_outputs(name):
    notebook = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert code and all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert notebook["cells"][0]["source"][0].startswith("# ")


@pytest.mark.slow
@pytest.mark.parametrize("name", SAYS)
def test_notebook(name, monkeypatch, capsys):
    """Run the cells in order in one namespace, as a kernel does; a kernel itself would take as long to start."""
    matplotlib.use("Agg")
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    before = set(EXAMPLES.rglob("*"))
    namespace = {"__name__": "__main__"}
    for cell in cells(name):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{name}:{cell['id']}", "exec"), namespace)
    said = capsys.readouterr().out
    for words in SAYS[name]:
        assert words in said, said
    assert {path for path in set(EXAMPLES.rglob("*")) - before if "__pycache__" not in path.parts} == set()
