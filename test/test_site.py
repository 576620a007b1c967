"""The documentation: links, paths and names in it lead somewhere."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
TEXTS = [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
FILES = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)


def relative(path):
    return str(path.relative_to(ROOT))


def anchor(heading):
    """Return the anchor that the site makes of a heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", re.sub(r"[`*]", "", heading)).strip().lower())


def headings(path):
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.M)}


@pytest.mark.parametrize("page", TEXTS, ids=relative)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"https?:|mailto:", target) or "reference/api/" in target:
            continue
        path, _, part = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{target} leads nowhere"
        assert not part or part in headings(file), f"{file.name} has no heading #{part}"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path):
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed (requirements-docs.txt; needs Python 3.11)")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    for page in (
        "index.html",
        "nodes/index.html",
        "theory/bounds/index.html",
        "reference/api/core/estimation/index.html",
    ):
        assert (tmp_path / page).is_file(), page
    assert "load_robot" in (tmp_path / "reference/api/core/model/index.html").read_text()


@pytest.mark.skipif(FILES.returncode != 0, reason="not a git checkout")
@pytest.mark.parametrize("page", TEXTS, ids=relative)
def test_files_that_are_named_exist(page):
    files = FILES.stdout.splitlines()
    for name in re.findall(r"`([\w/]+\.(?:py|yaml|msg|srv|action))\b", page.read_text()):
        generated = ("estimate.yaml", "bodies.yaml", "arm.yaml", "my_arm.yaml", "friction.yaml", "payload_")
        if "/" not in name and name.startswith(generated):
            continue
        assert any(file == name or file.endswith("/" + name) for file in files), name


@pytest.mark.skipif(FILES.returncode != 0, reason="not a git checkout")
def test_pages_that_are_named_in_the_code_exist():
    for file in FILES.stdout.splitlines():
        if (
            file.endswith((".py", ".msg", ".srv", ".action", ".yaml", ".yml", ".md", ".toml"))
            and (ROOT / file).is_file()
        ):
            for page in re.findall(r"\bdocs/[\w/]+\.md\b", (ROOT / file).read_text()):
                if not page.startswith("docs/measurements/"):
                    assert (ROOT / page).is_file(), f"{file} names {page}"


def test_measurements_have_their_data():
    """No page of numbers is typed, and the list has all of them."""
    sys.path.insert(0, str(ROOT / "bench"))
    try:
        spec = importlib.util.spec_from_file_location("record", ROOT / "bench" / "record.py")
        record = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(record)
    finally:
        sys.path.remove(str(ROOT / "bench"))
    folder = ROOT / "docs" / "measurements"
    pages = {path.stem for path in folder.glob("*.md")} - {"index"}
    assert pages == {path.stem for path in folder.glob("*.json")}
    for name in pages:
        data = json.loads((folder / f"{name}.json").read_text())
        assert (folder / f"{name}.md").read_text() == record.render(data), f"{name}.md was changed by hand"
        assert {"date", "commit", "machine", "load", "command"} <= set(data)
    for name in sys.modules["_conclusions"].RULES:
        data = json.loads((folder / f"{name}.json").read_text())
        assert sys.modules["_conclusions"].conclude(name, data), f"{name}.md has no conclusion"
    measured = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    assert (folder / "index.md").read_text() == record.render_index(measured), "index.md was changed by hand"


def test_recorded_benchmarks_choose_their_threads_themselves():
    """What sets OMP_NUM_THREADS after numpy is loaded has no effect, and a second thread counts as processor time."""
    code = "import sys; sys.path.insert(0, 'bench'); import record; assert 'numpy' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
