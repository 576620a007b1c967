"""Robots of these tests."""

import pytest
from textbook import load_textbook


@pytest.fixture(scope="session")
def lbr():
    return load_textbook("kuka_lbr_med7")
