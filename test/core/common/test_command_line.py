"""What is told to a person: in lines that end at words on a terminal, whole elsewhere."""

import io

import pytest

from sysid_ros.core.common.command_line import CommandParser, tell


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("width", [40, 60, 80])
def test_long_sentences_end_at_words_on_a_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    text = (
        "robot 'ur5' is unknown; known are franka_fr3, kinova_gen3, kuka_lbr_iiwa14, ur5e, or give a file\nSecond line"
    )
    stream = Terminal()
    tell("error: ", text, stream)
    first, *others = stream.getvalue().splitlines()
    assert first.startswith("error: robot 'ur5'") and all(len(line) <= width for line in (first, *others))
    assert all(line.startswith(" " * 7) for line in others) and others[-1].strip() == "Second line"
    assert " ".join([first, *map(str.strip, others)]) == f"error: {text}".replace("\n", " ")


def test_elsewhere_nothing_is_broken():
    stream = io.StringIO()
    tell("error: ", "word " * 100, stream)
    assert stream.getvalue() == f"error: {'word ' * 100}\n"


@pytest.mark.parametrize(("word", "hint"), [("--windw", " (did you mean --window?)"), ("--zzz", "")])
def test_a_misspelt_option_names_the_one_that_may_be_meant(capsys, word, hint):
    parser = CommandParser(prog="sysid offline")
    parser.add_argument("--window", type=float)
    with pytest.raises(SystemExit) as end:
        parser.parse_args([word, "0.2"])
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        f"sysid offline: error: unrecognized arguments: {word} 0.2{hint}\n`sysid offline --help` lists the options\n"
    )  # the usage, of many lines, would hide what is wrong
