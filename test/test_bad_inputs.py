"""The page of bad inputs says what the commands say."""

import importlib.util
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs" / "make_inputs.py"


@pytest.fixture(scope="module")
def make_inputs():
    spec = importlib.util.spec_from_file_location("make_inputs", PAGE)
    module = importlib.util.module_from_spec(spec)
    __import__("sys").modules["make_inputs"] = module  # dataclasses look there
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_page_is_up_to_date(make_inputs):
    assert make_inputs.PATH.read_text() == make_inputs.build_page(), "run: python docs/make_inputs.py"


def test_twenty_inputs_have_message_and_cure(make_inputs):
    text = make_inputs.PATH.read_text()
    assert len(make_inputs.CASES) == 20
    for case in make_inputs.CASES:
        section = text.split(f"## {case.title}\n")[1].split("\n## ")[0]
        assert "$ sysid " in section and f"**Cure:** {case.cure}" in section
        assert "Traceback" not in section and "Exit status 5" not in section
        assert section.split("```")[1].count("\n") >= 3, "the command says something"
