"""The site of the pages: `make docs` builds it with Sphinx, from the Markdown as it is, into .docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "common"))

project = "oci-cluster"
project_copyright = "the contributors of oci-cluster, Apache 2.0"
version = release = re.findall(r'__version__ = "(.*)"', (ROOT / "common/oci_cluster/__init__.py").read_text())[0]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "README"
include_patterns = [
    "*.md",
    "docs/*.md",
    "*/README.md",
    "tests/*/README.md",
    "scripts/*/README.md",
    "scripts/templates/*/README.md",
]
# Not even looked into; and what a project of `new.sh` gets, in whose folder its links lead somewhere.
exclude_patterns = [".*", "node_modules", "scripts/templates/project"]
myst_heading_anchors = 4  # as GitHub makes them
html_theme = "furo"
html_title = f"oci-cluster {version}"
html_show_sphinx = False
html_static_path = ["site.css"]
html_css_files = ["site.css"]
autodoc_member_order = "bysource"

# Where what docs/README.md lists stands in the navigation, by its tables' first cells; and what no table has.
MORE = {
    "Frameworks": ("dask/README", "pytorch/README", "tensorflow/README", "horovod/README", "ray/README"),
    "The project": (
        *("CHANGELOG", "CONTRIBUTING", "SECURITY", "tests/oci_service/README", "examples/README"),
        *("scripts/sessions/README", "scripts/templates/terraform/README"),
    ),
}
REFERENCE = """
## Reference

```{eval-rst}
.. automodule:: oci_cluster
   :members: Cluster, Job
   :undoc-members:
```
"""


def sections(index: str) -> dict[str, list[str]]:
    """Return the pages of each table of *index*, docs/README.md, below the table's heading cell."""
    found: dict[str, list[str]] = {}
    for line in index.splitlines():
        if heading := re.fullmatch(r"\| ([^\[|]+) \| *\|", line):
            pages = found.setdefault(heading[1].capitalize(), [])
        elif page := re.match(r"\| \[[^\]]*\]\(([^)]*)\.md\)", line):
            pages.append(page[1].removeprefix("../") if page[1].startswith("../") else f"docs/{page[1]}")
    return found


def complete(_app: Sphinx, name: str, source: list[str]) -> None:
    """Add to a page what only the site has: the navigation, and the reference of the Python API."""
    if name == root_doc:
        index = sections((ROOT / "docs" / "README.md").read_text(encoding="utf-8"))
        listed = {page for pages in index.values() for page in pages}
        parts = {"Overview": ["docs/README"], **index, **MORE}
        for caption, pages in parts.items():
            own = [page for page in pages if caption not in MORE or page not in listed]
            source[0] += f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n" + "\n".join(f"/{page}" for page in own)
            source[0] += "\n```\n"
    elif name == "docs/python":
        source[0] += REFERENCE
    # A link to a folder, or to a file that is no page, leads to the repository, which has no address yet.
    here = (ROOT / name).parent

    def resolved(match: re.Match[str]) -> str:
        target = here / match[2].partition("#")[0]
        is_page = match[2].startswith(("#", "http", "mailto:")) or target.suffix in (".md", ".png", ".svg")
        return match[0] if is_page or match[0].startswith("!") else f"{match[1]}"

    source[0] = re.sub(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)", resolved, source[0])


def setup(app: Sphinx) -> None:
    """Have Sphinx call :func:`complete` for each page that it reads."""
    app.connect("source-read", complete)
