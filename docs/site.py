"""MkDocs' hooks: documents of the repository that stand beside its code are pages of the site, too."""

import os
import pathlib
import re

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Where the site has them, and how the repository names them.
BESIDE_CODE = "repository/"
OUTSIDE = ["README.md", "ARCHITECTURE.md", "BENCHMARKS.md", "CHANGELOG.md", "CONTRIBUTING.md", "DECISIONS.md",
           "SECURITY.md", "client/examples/digits/README.md", "client/examples/mlp/README.md",
           "client/examples/push/README.md", "client/python/README.md", "client/python/fast/README.md",
           "deploy/README.md", "kernels/README.md", "docs/lab/README.md"]
LINK = re.compile(r"(\]\()([^)#\s:]+)((?:#[^)\s]*)?\))")


def page_of(path):
    """Where the site has the repository's file, or None."""
    if path.startswith("docs/"):
        return path[len("docs/"):]
    return BESIDE_CODE + path if path in OUTSIDE else None


def path_of(page):
    return page[len(BESIDE_CODE):] if page.startswith(BESIDE_CODE) else f"docs/{page}"


def on_files(files, config):
    for path in OUTSIDE:
        if not path.startswith("docs/"):
            files.append(File.generated(config, page_of(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Links between the repository's files become links between pages; of other files the name stays."""
    here = page.file.src_uri
    folder = os.path.dirname(path_of(here))

    def relinked(match):
        path = os.path.normpath(os.path.join(folder, match[2]))
        target = page_of(path)
        if target is None or not (ROOT / path).is_file():
            return f"](# \"{path}\")" if (ROOT / path).exists() else match[0]
        return match[1] + os.path.relpath(target, os.path.dirname(here)) + match[3]

    return LINK.sub(relinked, markdown)
