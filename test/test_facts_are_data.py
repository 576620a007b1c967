"""Nothing branches on the text of a message: states, reasons and outcomes are fields and enumerations."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

TEXTS = {
    "text", "message", "markdown", "reason", "alarm", "fault", "notice", "problem", "violation", "refusal",
    "error_text",
    "guarantee", "claims", "shortfall", "payload_change", "stop_reason", "scheduling", "where", "law", "control_law",
}  # fmt: skip
"""Attributes and variables that hold sentences for people, however they are spelt (``_reason``, ``last_text``)."""
SEARCHES = {"startswith", "endswith", "partition", "rpartition", "split", "find", "index", "count", "removeprefix"}
UNCHANGED = {"lower", "upper", "strip", "casefold"}


def is_text(node):
    """Whether an expression is a sentence for people: an attribute or variable of that name, or ``str(error)``."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute) and node.func.attr in UNCHANGED:
            return is_text(node.func.value)
        is_str = isinstance(node.func, ast.Name) and node.func.id == "str" and len(node.args) == 1
        return is_str and isinstance(node.args[0], ast.Name) and node.args[0].id in ("error", "exception")
    if isinstance(node, ast.Attribute):
        name = node.attr
    elif isinstance(node, ast.Name) and node.id not in ("text", "message", "where"):  # text that is read, and messages
        name = node.id
    else:
        return False
    name = name.lstrip("_")
    return name in TEXTS or any(name.endswith(f"_{text}") for text in ("reason", "alarm", "fault", "problem", "text"))


def is_words(node):
    """Whether an expression is text written in the code."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def find_branches(source):
    """Lines and code of what decides by the content of a sentence."""
    found = []
    for node in ast.walk(ast.parse(source)):
        hit = False
        if isinstance(node, ast.Compare):
            for operator, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
                if isinstance(operator, (ast.In, ast.NotIn)):
                    hit |= is_text(right)
                elif isinstance(operator, (ast.Eq, ast.NotEq)):
                    hit |= (is_text(left) and is_words(right)) or (is_words(left) and is_text(right))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            is_regex = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            hit = (node.func.attr in SEARCHES and is_text(node.func.value)) or (
                is_regex and any(is_text(argument) for argument in node.args)
            )
        if hit:
            found.append((node.lineno, ast.unparse(node)))
    return found


@pytest.mark.parametrize(
    "source",
    [
        "if NO_GUARANTEE in status.text: pass",
        "if 'stuck' not in reason: pass",
        "if estimate.alarm != '': pass",
        "if state.reason == 'holding': pass",
        "ok = self._loop.scheduling.startswith('SCHED_FIFO')",
        "guaranteed = 'not guaranteed' not in self.guarantee.lower()",
        "if self._effort_fault in self._reason: pass",
        "head, _, tail = response.message.partition(': ')",
        "if 'timed out' in str(error): pass",
        "match = re.search('joint_(.)', rejection.where)",
    ],
)
def test_what_branches_on_text_is_found(source):
    assert len(find_branches(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "if status.code is LoopCode.OK: pass",
        "if reason is not None: log(reason)",
        "if estimate.alarm: pass",
        "name, _, value = text.partition('=')",
        "if frame.message in self._waiting: pass",
        "if key in message: pass",
        "text = f'{status.text}; {words}'",
    ],
)
def test_what_does_not_is_left_alone(source):
    assert find_branches(source) == []


def test_nothing_in_the_product_branches_on_text():
    files = sorted((ROOT / "sysid_ros").rglob("*.py"))
    assert len(files) > 100
    found = [
        f"{path.relative_to(ROOT)}:{line}: {code}" for path in files for line, code in find_branches(path.read_text())
    ]
    assert found == []
