#!/usr/bin/env python3
"""Tables of the documents have what the programs have, and nothing else: docs/json.md the members that `warpcall --json`
prints, docs/compare.md the columns of `bench --csv`, client/examples/push the verdicts and the members of a manifest.

    document_tables_test.py SOURCE BUILD
"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import readme_test

SOURCE, BUILD = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
GRAPH = {"steps": [{"name": "y", "kernel": "gelu", "inputs": ["x"]}, {"name": "z", "kernel": "gelu", "inputs": ["y"]}],
         "outputs": ["z", {"name": "y", "keep": True}]}
BENCH = "gelu --shape 8x8 --iterations 3 --warmup 1 --implementation cpu"
PUSH = """// warpcall-kernel {
//   "name": "g", "op": "gelu", "types": ["float32"], "code": {"kind": "cuda", "entry": "g"},
//   "args": ["x.ptr", "y.ptr"], "launch": {"grid": [1], "block": [0]}
// }
"""
# For each heading of docs/json.md the commands whose output it describes, together.
COMMANDS = {
    "devices": ["devices"],
    "kernels": ["kernels softmax", "kernels fused"],
    "run": ["run gelu --shape 8x8 --output y.npy", "run gelu --shape 8x8 --keep"],
    "graph": ["graph graph.json --input x=x.npy --output z.npy"],
    "graph --describe": ["graph graph.json --input x=x.npy --describe"],
    "put, get, free, tensors": ["put x.npy", "tensors", "get {handle} --output y.npy", "free {handle}"],
    "bench": [f"bench {BENCH} --baseline before.json"],
    "tune": [f"tune {BENCH}"],
    "compare": ["compare before.json before.json"],
    "profile": ["profile gelu --shape 8x8 --implementation cpu --implementation manual"],
    "describe": ["describe gelu --shape 8x8"],
    "push": ["push wrong.cu"],
    "load": ["load gelu --shape 8 --rate 100 --requests 5 --warmup 0"],
    "health, version": ["health", "version", "--server unix:none.sock version"],
}


def sections_of(text):
    """{heading: {member: names of its own members, or None where they are not listed}} of the last part."""
    service = text_of("docs/reference/service.md")
    fields = {name.lower(): set(re.findall(r"^\| \d+ \| `(\w+)`", body, re.M))
              for name, body in re.findall(r"^### (\w+)\n((?:(?!###).*\n)*)", service, re.M)}
    found = {}
    for heading, body in re.findall(r"^### (.+)\n((?:(?!##).*\n)*)", text, re.M):
        members = found.setdefault(heading, {})
        for names, meaning in re.findall(r"^\| (`.+?`(?:, `.+?`)*) \| (.*) \|$", body, re.M):
            link = re.match(r"\[\w+\]\(reference/service\.md#(\w+)\)", meaning)
            for name in re.findall(r"`(.+?)`", names):
                members[name] = fields[link[1]] if link else None
    return found


def text_of(path):
    return (SOURCE / path).read_text(encoding="utf-8")


def first_cells(path, heading):
    """The names in the first column of the table that begins so."""
    table = text_of(path).partition(f"\n{heading}")[2].partition("\n\n")[0]
    return [name for cell in re.findall(r"^\| (`.*?`) \|", table, re.M) for name in re.findall(r"`(\w+)`", cell)]


def paths_of(value, path=""):
    """(path, value) of a JSON value and of all that is in it, "rows[].name"."""
    yield path, value
    if isinstance(value, dict):
        for name, member in value.items():
            yield from paths_of(member, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and all(isinstance(item, (dict, list)) for item in value):
        for item in value:
            yield from paths_of(item, path + "[]")


class DocumentTablesTest(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.text = text_of("docs/json.md")
        cls.sections = sections_of(cls.text.partition("\n## Members\n")[2])
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.session = readme_test.Session(SOURCE, BUILD, cls.folder)
        cls.addClassCleanup(cls.session.stop_server)
        cls.session.start_server([])
        readme_test.write_npy(cls.folder / "x.npy", [8, 8])
        (cls.folder / "graph.json").write_text(json.dumps(GRAPH))
        (cls.folder / "wrong.cu").write_text(PUSH)
        (cls.folder / "before.json").write_text(cls.run_command(f"bench {BENCH} --csv before.csv").stdout)

    @classmethod
    def run_command(cls, command, status=0):
        done = subprocess.run([f"{BUILD}/bin/warpcall", "--json", *command.split()], cwd=cls.folder, text=True,
                              env=cls.session.environment, capture_output=True, timeout=100, check=False)
        if done.returncode != status:
            raise AssertionError(f"{command} ended with {done.returncode}: {done.stdout}{done.stderr}")
        return done

    def outputs_of(self, commands):
        handle = ""
        for command in commands:
            status = 3 if command.startswith("push") else 0
            output = json.loads(self.run_command(command.format(handle=handle), status).stdout)
            handle = output.get("handle", handle)
            yield output

    def check_members(self, heading, outputs):
        members = self.sections[heading]
        seen = {}
        for output in outputs:
            for path, value in paths_of(output):
                seen.setdefault(path, []).append(value)
        # A member covers what is in it, unless that is listed as well.
        unknown = [path for path, values in seen.items() if path and path not in members
                   and not any(path.startswith((name + ".", name + "[")) for name in members)
                   and not any(name.startswith((path + ".", path + "[")) for name in members)]
        self.assertEqual(unknown, [], f"docs/json.md, {heading}: not listed")
        self.assertEqual([name for name in members if name not in seen], [], f"docs/json.md, {heading}: not printed")
        for name, fields in members.items():
            for value in seen[name] if fields else []:
                if isinstance(value, dict):
                    extra = {"notes"} if fields >= {"median_ns"} else set()
                    self.assertEqual(set(value), fields | extra, name)

    def test_members_are_those_that_are_printed(self):
        self.assertEqual(set(COMMANDS), set(self.sections) - {"top"})
        bench = {name: fields for name, fields in self.sections["bench"].items() if name != "comparison"}
        self.sections["tune"].update(bench)
        for heading, commands in COMMANDS.items():
            with self.subTest(heading):
                outputs = list(self.outputs_of(commands))
                if heading == "profile":
                    ((compared,), outputs) = (outputs, outputs[0]["profiles"])
                    self.assertEqual(set(compared["comparison"]), {"time_ratio", "ratios", "reasons"})
                self.check_members(heading, outputs)

    def test_errors_have_their_members_and_exit_statuses(self):
        members = set(first_cells("docs/json.md", "| member of `error` |"))
        for command, status in (("run gleu --shape 4", 1), ("free 00", 1), ("health --service none", 1),
                                ("run gelu none.npy", 2), ("devices 1", 2), ("compare none.json none.json", 2)):
            with self.subTest(command):
                error = json.loads(self.run_command(command, status).stderr.splitlines()[-1])["error"]
                self.assertEqual(set(error), members)
                self.assertEqual(error["exit_status"], status)

    def test_columns_are_those_of_csv(self):
        columns = (self.folder / "before.csv").read_text().splitlines()[0].split(",")
        self.assertEqual(sorted(first_cells("docs/compare.md", "| column |")), sorted(columns))

    def test_verdicts_and_members_are_those_of_the_server(self):
        verdicts = re.findall(r'return "([A-Z_]+)";', text_of("server/engine/finding.cc"))
        self.assertGreater(len(verdicts), 10)
        table = re.findall(r"^\| ([A-Z_]+) \|", text_of("client/examples/push/README.md"), re.M)
        self.assertEqual(sorted(table), sorted(verdicts))
        members = re.search(r"kMembers\[\] = \{(.*?)\};", text_of("kernels/manifest/kernel_manifest.cc"), re.S)[1]
        self.assertEqual(sorted(first_cells("client/examples/push/README.md", "| member |")),
                         sorted(re.findall(r'"(\w+)"', members)))

    def test_the_line_on_stdout_has_the_ports(self):
        shown = json.loads(re.search(r"^\{.*\}$", self.text.partition("## Readiness")[2], re.M)[0])
        session = readme_test.Session(SOURCE, BUILD, self.folder)
        line = json.loads(session.start_server(["--log_format=json"])[0])
        session.stop_server()
        self.assertEqual(set(line), set(shown))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
