#!/usr/bin/env python3
"""docs/reference is what the programs, the proto and the Python package say of themselves, and docs/ leads to each of
its pages.

    reference_test.py SOURCE BUILD

Exit status 77: skipped, Debian's packages for Python are missing.
"""

import difflib
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

try:
    import google.protobuf  # noqa: F401
    import grpc  # noqa: F401
    import numpy  # noqa: F401
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
DOCS = SOURCE / "docs"
GENERATE = DOCS / "reference" / "generate.py"


def pages_in(folder):
    return {page.name: page.read_text(encoding="utf-8") for page in pathlib.Path(folder).glob("*.md")}


class ReferenceTest(unittest.TestCase):
    def test_it_is_what_the_programs_say(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, GENERATE, BUILD, folder], check=True, timeout=200)
            now = pages_in(folder)
        committed = pages_in(DOCS / "reference")
        self.assertEqual(now.keys(), committed.keys())
        for name, text in now.items():
            changes = list(difflib.unified_diff(committed[name].splitlines(), text.splitlines(),
                                                f"docs/reference/{name}", "now", lineterm="", n=0))
            self.assertEqual(changes, [], "\n".join(["run docs/reference/generate.py", *changes[:20]]))

    def test_each_flag_command_and_method_has_a_place(self):
        pages = pages_in(DOCS / "reference")
        help_of = {name: subprocess.run([BUILD / "bin" / name, "--help"], capture_output=True, text=True, check=True,
                                        timeout=60).stdout for name in ("warpcalld", "warpcall")}
        flags = set(re.findall(r"^  (?:-h,)?(--\w+)", help_of["warpcalld"], re.M))
        self.assertGreater(len(flags), 40)
        self.assertEqual(flags, set(re.findall(r"^- \*\*`(--\w+)`\*\*", pages["flags.md"], re.M)))
        # The text behind a flag's name in --help went to its columns.
        self.assertNotRegex(pages["flags.md"], r"(INT|FLOAT|TEXT)[:=]")
        commands = set(re.findall(r"^  ([a-z]+) ", help_of["warpcall"].partition("Subcommands:")[2], re.M))
        self.assertGreater(len(commands), 10)
        self.assertEqual(commands, set(re.findall(r"^## (\w+)$", pages["commands.md"], re.M)))
        proto = (SOURCE / "proto/warpcall/v1/warpcall.proto").read_text(encoding="utf-8")
        for method in re.findall(r"^  rpc (\w+)", proto, re.M):
            self.assertIn(f"| `{method}` | ", pages["service.md"])
        for found in re.findall(r"^message (\w+)", proto, re.M):
            self.assertIn(f"### {found}\n", pages["service.md"])

    def test_the_index_leads_to_every_page(self):
        index = (DOCS / "index.md").read_text(encoding="utf-8")
        linked = set(re.findall(r"\]\(([\w/.]+\.md)[)#]", index))
        pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
        self.assertEqual({page for page in pages if not page.startswith("lab/")} - {"index.md"} - linked, set())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
