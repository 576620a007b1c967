"""The arm that most tests run on."""

import pytest


@pytest.fixture(scope="session")
def robot():
    from textbook import load_textbook

    return load_textbook()
