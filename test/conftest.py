"""The arm that most tests run on."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # the helpers of all tests


@pytest.fixture(scope="session")
def robot():
    from textbook import load_textbook

    return load_textbook()
