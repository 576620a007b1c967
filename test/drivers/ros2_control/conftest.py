"""Robots of these tests."""

import sys
from pathlib import Path

import pytest
from textbook import load_textbook

sys.path.insert(0, str(Path(__file__).parent))  # the helpers of these tests


@pytest.fixture(scope="session")
def lbr():
    return load_textbook("kuka_lbr_med7")
