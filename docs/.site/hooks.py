"""What the site needs beyond MkDocs: pages and files from outside docs/, GitHub's anchors, no request to another host.

The pages are read on GitHub as well as on the site, so their links are those of the repository. What a link names
outside of `docs/` (the architecture, an alert rule) is copied to `project/` of the site, and the link changed to match.
"""  # noqa: INP001

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

ROOT = Path(__file__).parents[2]
PAGES = ("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "STYLE.md")
FOLDERS = ("deploy", "examples")
LINKED = {".json", ".yaml", ".yml"}
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#|/)(?P<target>[^)#\s]+)")
LOADED = re.compile(r"""<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=["']?(?:https?:)?//[^"'> ]+""")


def on_config(config: MkDocsConfig) -> None:
    """Give headings the anchors that GitHub gives them, so that a link works in both places."""
    config.mdx_configs.setdefault("toc", {})["slugify"] = slugify(case="lower")


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages at the root of the project, and the files that pages link to."""
    found = (path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*")))
    for path in [*(ROOT / page for page in PAGES), *(path for path in found if path.suffix in LINKED)]:
        files.append(File.generated(config, _in_site(path), abs_src_path=str(path)))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave docs/ at the copies in the site."""
    source = page.file.src_uri
    place = ROOT / source.removeprefix("project/") if source.startswith("project/") else ROOT / "docs" / source

    def moved(link: re.Match[str]) -> str:
        target = (place.parent / link["target"]).resolve()
        if not target.exists():
            return link["target"]  # MkDocs says which link is wrong
        return posixpath.relpath(_in_site(target), posixpath.dirname(source))

    return LINK.sub(moved, markdown)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Refuse a page that would load anything from another host."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} would load from another host: {found[0]}")


def _in_site(path: Path) -> str:
    docs = ROOT / "docs"
    return str(path.relative_to(docs)) if path.is_relative_to(docs) else f"project/{path.relative_to(ROOT)}"
