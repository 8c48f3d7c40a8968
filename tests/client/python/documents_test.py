"""Runs the Python client's documents on the real server: README's lines, the notebook cell by cell, the examples.
Generated files must be current."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from support import ENVIRONMENT, ROOT, RealServer, main, np

PACKAGE = os.path.join(ROOT, "client", "python")
EXAMPLES = os.path.join(PACKAGE, "examples")
ADDRESS = "127.0.0.1:8470"


def text_of(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


class DocumentsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())

    def python(self, *arguments, folder=None):
        return subprocess.run([sys.executable, "-W", "error", *arguments], env=ENVIRONMENT, text=True,
                              capture_output=True, timeout=200, cwd=folder, check=False)

    def run_blocks(self, path, least, before=""):
        blocks = re.findall(r"```python\n(.*?)```", text_of(path), re.S)
        self.assertGreaterEqual(len(blocks), least)
        program = "\n".join([before, *blocks]).replace(ADDRESS, self.server.address)
        with tempfile.TemporaryDirectory() as folder:
            done = self.python("-c", program, folder=folder)
        bar = re.compile(r"^gelu: .*$", re.M)  # tqdm's, where it is installed
        self.assertEqual((done.returncode, bar.sub("", done.stderr).strip()), (0, ""), program)

    def test_readme_runs(self):
        self.run_blocks(os.path.join(PACKAGE, "README.md"), 3)

    def test_the_projects_readme_and_guide_run(self):
        inputs = ("import numpy as np, warpcall\n"
                  "x, weight, bias = (np.ones(shape, np.float32) for shape in ((8, 16), (4, 16), 4))")
        for name in ("README.md", "docs/start.md", "docs/layer.md"):
            with self.subTest(name):
                self.run_blocks(os.path.join(ROOT, name), 1, inputs)

    def test_the_guide_for_any_client_runs(self):
        try:
            import google.protobuf  # noqa: F401
        except ImportError as missing:
            self.skipTest(str(missing))
        path = os.path.join(ROOT, "docs", "grpc.md")
        # grpcio-tools' command, by Debian's compiler.
        (words,) = re.findall(r"^python -m grpc_tools\.protoc (.*)$", text_of(path), re.M)
        with tempfile.TemporaryDirectory() as folder:
            command = words.replace("-I ", f"-I {ROOT}/").replace("=.", f"={folder}").split()
            plugin = shutil.which("grpc_python_plugin")
            subprocess.run(["protoc", f"--plugin=protoc-gen-grpc_python={plugin}", *command], check=True, timeout=60)
            self.run_blocks(path, 1, f"import sys\nsys.path.insert(0, {folder!r})")

    def test_versions_agree(self):
        root = text_of(os.path.join(ROOT, "CMakeLists.txt"))
        project = re.search(r"project\(\w+ VERSION ([\d.]+)", root)[1]
        for line in (f'fast = ["warpcall-fast=={project}"]', f'version = "{project}"'):
            self.assertIn(line, text_of(os.path.join(PACKAGE, "pyproject.toml")))
        fast = os.path.join(PACKAGE, "fast")
        nanobind = re.search(r"nanobind==[\d.]+", text_of(os.path.join(fast, "pyproject.toml")))[0]
        self.assertIn(nanobind, text_of(os.path.join(fast, "requirements.txt")))
        linters = re.search(r"^lint = \[(.*)\]$", text_of(os.path.join(PACKAGE, "pyproject.toml")), re.M)[1]
        fetched = text_of(os.path.join(ROOT, "tests", "client", "python", "requirements.txt"))
        for linter in re.findall(r'"((?:basedpyright|grpc-stubs|ruff)==[\d.]+)"', linters):
            self.assertIn(f"\n{linter} ", fetched)

    def test_generated_files_are_current(self):
        done = self.python(os.path.join(PACKAGE, "generate_stubs.py"), self.server.address, "--check")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_notebook_runs(self):
        notebook = json.loads(text_of(os.path.join(EXAMPLES, "implementations.ipynb")))
        self.assertEqual((notebook["nbformat"], notebook["nbformat_minor"]), (4, 4))
        shown, names = [], {}
        for cell in notebook["cells"]:
            if cell["cell_type"] == "markdown":
                self.assertEqual(set(cell), {"cell_type", "metadata", "source"})
                continue
            self.assertEqual((cell["outputs"], cell["execution_count"]), ([], None), "stripped")
            shown.append(self.run_cell("".join(cell["source"]), names))
        html = [what._repr_html_() for what in shown if hasattr(what, "_repr_html_")]
        self.assertEqual([text.partition(" ")[0] for text in html],
                         ["<p>gelu", "<p>softmax", "<p>softmax"])
        (svg,) = [what for what in shown if hasattr(what, "_repr_svg_")]
        for kernel in ("gelu", "softmax"):
            rows = [row.name for report in names["reports"] if report.kernel == kernel
                    for row in report.rows if not row.error]
            self.assertGreater(len(rows), 2)
            for row in rows:
                self.assertIn(f">{kernel} 64x48 {row}<", svg)

    def run_cell(self, source, names):
        """Runs a cell as a notebook does: shows the value of the last expression."""
        source = source.replace(ADDRESS, self.server.address).replace("4096x4096", "64x48")
        tree = ast.parse(source)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, "cell", "exec"), names)
        return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)

    def test_a_batch_of_files(self):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(folder, "in")
            os.mkdir(source)
            arrays = {f"{i:02}.npy": np.full((i + 1, 3), i, np.float32) for i in range(20)}
            for name, array in arrays.items():
                np.save(os.path.join(source, name), array)
            done = self.python(os.path.join(EXAMPLES, "batch.py"), "identity", source,
                               os.path.join(folder, "out"), "--server", self.server.address)
            self.assertEqual((done.returncode, done.stdout), (0, "20 files\n"), done.stderr)
            for name, array in arrays.items():
                np.testing.assert_array_equal(np.load(os.path.join(folder, "out", name)), array)

    def test_a_function_of_ones_own(self):
        done = self.python(os.path.join(EXAMPLES, "own_function.py"), "--server", self.server.address,
                           "--rows", "16", "--columns", "64")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        text, fused, chain, difference = done.stdout.splitlines()
        self.assertEqual(text, "x0 * silu(x1) * rsqrt(mean(pow(x0 * silu(x1), 2)) + 1e-06) * x2")
        self.assertRegex(fused, r"fused -> float32\[16,64\] by cpu on cpu: kernel ")
        self.assertRegex(chain, r"fused -> float32\[16,64\] by manual on cpu: kernel ")
        self.assertLess(float(difference.rpartition(" ")[2]), 1e-5)

    def test_the_lesson(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lesson.svg")
            done = self.python(os.path.join(EXAMPLES, "lesson.py"), "--server", self.server.address,
                               "--shape", "640x480", "--iterations", "3", "--plot", path)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(path, encoding="utf-8") as file:
                svg = file.read()
        lines = [line.split() for line in done.stdout.splitlines()]
        for kernel in ("gelu", "softmax"):
            rows = {line[1]: line for line in lines if line[:1] == [kernel]}
            self.assertEqual(list(rows), ["manual", "library", "cpu"], done.stdout)
            for family, row in rows.items():
                self.assertIn(f">{kernel} 640x480 {family}:{row[2]}<", svg)
                median, speed, faster, least, copied = map(float, row[3:])
                expected = 8 * 640 * 480 / median / 1e3
                self.assertAlmostEqual(speed, expected, delta=0.006 + 0.02 * expected)
                self.assertEqual(least, 8)  # a float32 read and one written
                self.assertGreater(copied, 0)
                expected = float(rows["manual"][3]) / median
                self.assertAlmostEqual(faster, expected, delta=0.06 + 0.02 * expected)
        self.assertIn("not on this server, or not for this problem: cuda, triton, compiled",
                      done.stdout)

    def test_perceptrons_as_graphs(self):
        done = self.python(os.path.join(ROOT, "client", "examples", "mlp", "mlp.py"),
                           "--server", self.server.address, "--layers", "2", "--rows", "6", "--seconds", "0.1")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        lines = done.stdout.splitlines()
        self.assertEqual([line.split()[0] for line in lines if line.startswith("layer_")], ["layer_0", "layer_1"])
        self.assertRegex(lines[-4], r"^2 layers of 1 row: \d+ passes/s by a graph, \d+ by a call for each layer, ")
        for line, name in zip(lines[-3:], ("forward", "block", "gradient"), strict=True):
            self.assertRegex(line, rf"^{name}: largest difference from NumPy \S+ of the largest value, allowed 1e-04$")

    def test_the_timeline_of_perceptrons(self):
        program = ("import sys, numpy as np, warpcall, mlp\n"
                   "with warpcall.connect(sys.argv[1]) as gpu:\n"
                   "    one = np.ones((32, 32), np.float32)\n"
                   "    layers = [(gpu.put(one), gpu.put(one[0])) for _ in range(2)]\n"
                   "    profile = mlp.forward_graph(gpu, layers).profile(x=one, iterations=2, trace=True)\n"
                   "bars = mlp.timeline(profile.trace_json)\n"
                   "assert bars == sorted(bars, key=lambda bar: bar[1])\n"
                   "assert all(begin >= 0 and length > 0 for _, begin, length in bars), bars\n"
                   "print(*(row for row, _, _ in bars if row.startswith('layer') or row == 'copy_in'))\n")
        done = self.python("-c", program, self.server.address,
                           folder=os.path.join(ROOT, "client", "examples", "mlp"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, "copy_in layer_0 layer_1\n")  # of one run

    def test_jax(self):
        try:
            import jax  # noqa: F401
        except ImportError as missing:
            self.skipTest(str(missing))
        done = self.python(os.path.join(EXAMPLES, "jax_callback.py"), self.server.address)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(float(done.stdout.rpartition(" ")[2]), 1e-5)


if __name__ == "__main__":
    main()
