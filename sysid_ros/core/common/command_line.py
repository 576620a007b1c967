"""The command line of all commands and programs: help with examples that work and with every exit status."""

from __future__ import annotations

import argparse
import difflib
import math
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn, TextIO

from sysid_ros.core.common.errors import ParameterOutOfRange

LARGEST_PORT = 65535
ENDINGS: Mapping[int, str] = MappingProxyType({0: "ended as it was told to", 2: "an option cannot be used"})
"""Exit statuses of a program that runs until it has to end."""
_PARSER = "_parser"
_AT_WORDS: Mapping[str, Any] = MappingProxyType({"break_long_words": False, "break_on_hyphens": False})


class CommandParser(argparse.ArgumentParser):
    """Parser of a command.

    Args:
        examples: Commands that work, each a line; the help shows them and tests parse them.
        endings: Meaning of each exit status.
        check: Refuses invalid options and missing files, without loading anything.
        options: Options of :class:`argparse.ArgumentParser`.
    """

    def __init__(
        self,
        examples: Sequence[str] = (),
        endings: Mapping[int, str] = MappingProxyType({}),
        check: Callable[[argparse.Namespace], None] | None = None,
        **options: Any,
    ):
        parts = ["\n".join(["examples:", *(f"  {example}" for example in examples)])] if examples else []
        if endings:
            parts.append("\n".join(["exit status:", *(f"  {code:<3}  {text}" for code, text in endings.items())]))
        super().__init__(**{"formatter_class": _Formatter, "epilog": "\n\n".join(parts), **options})
        self.examples, self.check = tuple(examples), check
        self.set_defaults(**{_PARSER: self})  # that of the innermost command wins

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options of a command line, unchecked."""
        return self._parse(args, namespace)[0]

    def read(self, argv: Sequence[str] | None = None) -> argparse.Namespace:
        """Return the valid options of a command line; None takes this process's.

        Raises:
            SysidError: The check of the command refuses them.
        """
        options, parser = self._parse(argv)
        if parser.check is not None:
            parser.check(options)
        return options

    def _parse(self, words: Any, namespace: Any = None) -> tuple[argparse.Namespace, CommandParser]:
        """Return the options and the innermost parser, which knows best what a misspelt option may mean."""
        options, unknown = self.parse_known_args(words, namespace)
        parser: CommandParser = options.__dict__.pop(_PARSER)
        if unknown:
            parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return options, parser

    def add_argument(self, *names: str, **options: Any) -> argparse.Action:
        """Add an argument as in :class:`argparse.ArgumentParser`; choices too long for a line are in its help only."""
        choices = [str(choice) for choice in options.get("choices") or ()]
        if len(",".join(choices)) > 27 and "metavar" not in options:
            options["metavar"] = names[-1].lstrip("-").replace("-", "_").upper()
            text = options.get("help") or ""
            if not all(choice in text for choice in choices):
                options["help"] = f"{text}; one of {', '.join(choices)}".lstrip("; ")
        return super().add_argument(*names, **options)

    def error(self, message: str) -> NoReturn:
        """Tell what is wrong with the command line, in lines that end at words, and what may be meant."""
        found = re.match(r"unrecognized arguments: (--[^\s=]+)|argument COMMAND: invalid choice: '(\S+)'", message)
        known = [*self._option_string_actions, *(name for one in self._actions for name in one.choices or ())]
        near = difflib.get_close_matches(found[1] or found[2], map(str, known), 1) if found else []
        hint = f" (did you mean {near[0]}?)" if near else ""
        tell(f"{self.prog}: error: ", f"{message}{hint}\n`{self.prog} --help` lists the options")
        sys.exit(2)


def tell(prefix: str, text: str, stream: TextIO | None = None) -> None:
    """Print a text for a person: on a terminal in lines that end at words, indented by the prefix; elsewhere unchanged.

    Args:
        prefix: Its beginning, such as ``error: ``.
        text: The text.
        stream: The output; None for standard error.
    """
    stream = sys.stderr if stream is None else stream
    lines = text.splitlines()
    if stream.isatty():
        width = max(shutil.get_terminal_size().columns, 2 * len(prefix))
        indents = [prefix, *[" " * min(len(prefix), 9)] * len(lines)]
        lines = [
            textwrap.fill(line, width, initial_indent=first, subsequent_indent=indents[-1], **_AT_WORDS)
            for first, line in zip(indents, lines, strict=False)
        ]
        prefix = ""
    print(prefix + "\n".join(lines), file=stream, flush=True)


def port_number(text: str) -> int:
    """Read the port of an option.

    Raises:
        argparse.ArgumentTypeError: There is no such port.
    """
    if not (text.isdecimal() and int(text) <= LARGEST_PORT):
        raise argparse.ArgumentTypeError(f"invalid port '{text}': expected 0 to {LARGEST_PORT}")
    return int(text)


LARGEST_SEED = 2**31 - 1


def require_numbers(
    options: argparse.Namespace, *names: str, least: float = 0.0, most: float = math.inf, is_open: bool = False
) -> None:
    """Refuse options outside of ``least`` to ``most``, infinite or NaN; ``is_open`` excludes ``least`` itself.

    Raises:
        ParameterOutOfRange: Names the option.
    """
    for name in names:
        value = getattr(options, name)
        if not least <= value <= most or math.isinf(value) or (is_open and value == least):
            allowed = f"more than {least:g}" if is_open else f"{least:g} or more" if math.isinf(most) else ""
            raise ParameterOutOfRange("--" + name.replace("_", "-"), value, allowed or f"{least:g} to {most:.10g}")


class _Formatter(argparse.HelpFormatter):
    """Fills paragraphs, and keeps lines that are indented apart."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n\n".join(fill(part, width, indent) for part in textwrap.dedent(text).strip().split("\n\n"))


def fill(paragraph: str, width: int, indent: str = "") -> str:
    """Return a paragraph in lines of at most ``width`` characters; its indented lines stay lines of their own."""
    lines: list[str] = []
    for line in paragraph.splitlines():
        is_apart = line.startswith(" ") or not lines or lines[-1].startswith(" ")
        lines = [*lines, line.rstrip()] if is_apart else [*lines[:-1], f"{lines[-1]} {line.strip()}"]
    return "\n".join(
        textwrap.fill(
            line.strip(),
            width,
            initial_indent=indent + line[: len(line) - len(line.lstrip())],
            subsequent_indent=indent + " " * 7 if line.startswith(" ") else indent,
            **_AT_WORDS,
        )
        for line in lines
    )
