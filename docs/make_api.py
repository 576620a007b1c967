"""Hook of mkdocs: adds the Python reference, a page for every package of sysid_ros."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("core", "drivers", "reports", "cli", "ros", "space", "emulators", "papers")
"""Nodes are described by the page of nodes, topics and parameters."""


def packages() -> dict[str, list[str]]:
    """Return the modules with public contents of every package, by name of the package."""
    found: dict[str, list[str]] = {}
    for layer in LAYERS:
        for path in sorted((ROOT / "sysid_ros" / layer).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            package, name = parts[1:-1], parts[-1]
            if name.startswith("_") or "\ndef " not in (text := path.read_text()) and "\nclass " not in text:
                continue
            # Packages below core/x and below other layers share the page of core/x or of the layer.
            page = "/".join(package[: 2 if package[0] == "core" else 1])
            found.setdefault(page, []).append(".".join(parts))
    return found


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages into the navigation, at the end of the reference."""
    pages = [{page.replace("/", "."): f"reference/api/{page}.md"} for page in packages()]
    (reference,) = [entry["Reference"] for entry in config.nav or [] if "Reference" in entry]
    reference.append({"Python": pages})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages."""
    for page, modules in packages().items():
        content = f"# {page.replace('/', '.')}\n\n" + "\n\n".join(f"::: {module}" for module in modules) + "\n"
        files.append(File.generated(config, f"reference/api/{page}.md", content=content))
    return files
