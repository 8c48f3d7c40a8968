"""Pushes of kernels, on a server that sends the events that a test says: what is asked for, the report, its texts, and
every way in which a push can end early."""

import asyncio
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import xml.etree.ElementTree

from support import BUILD, ENVIRONMENT, ROOT, SECONDS_MAX, FakeServer, Messages, grpc, in_thread, main
import warpcall
from benchmark_test import Stream, never
from ways import QUICK

MESSAGES = Messages()
MANIFEST = {"name": "mine", "op": "softmax", "types": ["float16", "float32"], "attributes": {"axis": -1}}
SOURCE = ("\n// warpcall-kernel {\n//   \"name\": \"mine\", \"op\": \"matmul\",\n//   \"types\": [\"bfloat16\"]\n// }\n"
          "__global__ void mine() {}\n")
STATUSES = ("INVALID_MANIFEST", "COMPILE_ERROR", "NOT_SUPPORTED", "INCORRECT_NUMERICAL", "INPUT_MODIFIED",
            "OUT_OF_BOUNDS", "NONDETERMINISTIC", "RUNTIME_ERROR", "TIMEOUT", "BELOW_FLOOR", "INTERNAL_ERROR")
STAMP = {"device_description": "a chip", "driver": "580"}
PROBLEM = {"inputs": [{"data_type": 2, "shape": [64, 32]}], "attributes": {"axis": MESSAGES.Attribute(int_value=-1)}}


def event(**held):
    """The bytes of a PushEvent."""
    return MESSAGES.PushEvent(**held).SerializeToString()


def verdict(status="PASSED", **fields):
    return event(verdict={"status": status, **fields})


def compiled(**fields):
    return event(compiled={"compile_ns": 31_000_000, "registers_per_thread": 40, "data_type": 2, "arch": "sm_90a",
                           "digest": "ab12", "theoretical_occupancy": 0.75, **fields})


def checked(passed=True, **fields):
    return event(checked={"problem": PROBLEM, "passed": passed, "max_error": 0.125, "checked_elements": 2048,
                          "fill": "normal", **fields})


def timed(**fields):
    results = [{"implementation": "pushed", "median_ns": 1500, "iterations": 9},
               {"implementation": "cuda", "median_ns": 3000, "iterations": 9, "launch": {"variant": "warp"}}]
    return event(timed={"problem": PROBLEM, "results": results, "ceiling_bytes_per_second": 1e9, "cold": True,
                        **fields})


LIFE = [event(queued={"before": 2}), compiled(), checked(), timed(floor_ns=1000),
        verdict(name="push:mine@ab12", digest="ab12", speedup=2.0, seed=(1 << 64) - 1, stamp=STAMP)]


def by_client(address, source=SOURCE, **options):
    with warpcall.connect(address, timeout=60, retry=QUICK) as client:
        return client.push(source, **options)


def by_aio(address, source=SOURCE, **options):
    async def take():
        async with warpcall.aio.connect(address, timeout=60, retry=QUICK) as client:
            return await client.push(source, **options)
    return asyncio.run(take())


WAYS = (by_client, by_aio)


class PushTest(unittest.TestCase):
    def serve(self, parts):
        self.stream = Stream(parts if callable(parts) else lambda context: iter(parts))
        return self.enterContext(FakeServer(never, self.stream)).address

    def asked(self, source=SOURCE, **options):
        """The PushRequest that a push sends; both clients send the same."""
        address = self.serve([verdict()])
        requests = []
        for call in WAYS:
            call(address, source, **options)
            requests.append(MESSAGES.PushRequest.FromString(self.stream.request))
        self.assertEqual(*requests)
        return requests[0]

    def refused(self, pattern, source=SOURCE, **options):
        address = self.serve(never)
        for call in WAYS:
            with self.assertRaisesRegex(warpcall.InvalidArgument, pattern):
                call(address, source, **options)
        self.assertEqual(self.stream.calls, 0)

    # ---- what is asked for ----

    def test_a_push_needs_only_a_source(self):
        self.assertEqual(self.asked(), MESSAGES.PushRequest(code=SOURCE.encode()))

    def test_every_option_is_sent(self):
        request = self.asked(manifest=MANIFEST, compare_with=["cuda", "library"], check_only=True, iterations=7,
                             seed=(1 << 64) - 1, device="cuda:1", fresh=True, with_files=True)
        self.assertEqual(json.loads(request.manifest_json), MANIFEST)
        request.manifest_json = ""
        self.assertEqual(request, MESSAGES.PushRequest(
            code=SOURCE.encode(), compare_with=["cuda", "library"], check_only=True, iterations=7, seed=(1 << 64) - 1,
            device="cuda:1", fresh=True, with_files=True))
        self.assertEqual(list(self.asked(compare_with="none").compare_with), ["none"])
        self.refused("seed is 18446744073709551616; it must fit into 64 bits", seed=1 << 64)
        self.refused("iterations is 2147483648; it must fit into 32 bits", iterations=1 << 31)

    def test_a_source_is_text_bytes_or_a_file(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.cu")
            with open(path, "wb") as file:
                file.write(b"// \xff {\n")
            for source, code in ((path, b"// \xff {\n"), (pathlib.Path(path), b"// \xff {\n"), (b"\xfe", b"\xfe"),
                                 ("void f() {} // .cu", b"void f() {} // .cu"), ("{\n.cu", b"{\n.cu")):
                self.assertEqual(self.asked(source).code, code)
            with self.assertRaises(FileNotFoundError):
                by_client(self.serve(never), os.path.join(folder, "none.cu"))
        for source in ("mine.cuh", "", 7, None):
            self.refused(r"source is .*; it must be CUDA C\+\+, or a path that ends in .cu", source)

    def test_a_manifest_is_a_dict_json_or_a_file(self):
        text = json.dumps(MANIFEST)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.json")
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            for manifest in (MANIFEST, text, path, pathlib.Path(path)):
                self.assertEqual(self.asked(manifest=manifest).manifest_json, text)
        self.assertEqual(self.asked(manifest="{broken").manifest_json, "{broken")  # gets its verdict
        for manifest in ("", "softmax", 7, [MANIFEST]):
            self.refused("manifest is .*; it must be a dict, JSON, or a path that ends in .json", manifest=manifest)
        self.refused("manifest: .*not JSON serializable", manifest={"name": {1}})

    def problems(self, problems, **options):
        """(types by their numbers, shapes, attributes) of each problem that is asked about."""
        names = {"int_value": int, "string_value": str}
        return [([spec.data_type for spec in each.inputs], [list(spec.shape) for spec in each.inputs],
                 {name: names[value.WhichOneof("value")](getattr(value, value.WhichOneof("value")))
                  for name, value in each.attributes.items()})
                for each in self.asked(problems=problems, **options).problems]

    def test_problems_are_given_as_to_benchmark(self):
        types = ([1], [2])  # of the manifest
        for shape in ("64x32", (64, 32)):
            self.assertEqual(self.problems(shape, manifest=MANIFEST), [(one, [[64, 32]], {}) for one in types])
        self.assertEqual(self.problems(["8", [4, 2]], manifest=json.dumps(MANIFEST)),
                         [(one, shape, {}) for shape in ([[8]], [[4, 2]]) for one in types])
        self.assertEqual(self.problems("4x5*5x6"), [([3, 3], [[4, 5], [5, 6]], {})])
        self.assertEqual(self.problems("4x6x5"), [([3, 3], [[4, 5], [5, 6]], {})])  # the comment's op is matmul
        self.assertEqual(self.problems({"shape": "4x6", "dtype": "float32", "axis": 0, "form": "a"}),
                         [([1], [[4, 6]], {"axis": 0, "form": "a"})])
        self.assertEqual(self.problems([{"shape": "4"}, "5"]), [([3], [[4]], {}), ([3], [[5]], {})])
        self.refused("problem {'dtype': 'float32'} has no shape", problems={"dtype": "float32"})
        self.refused("dtype is int8", problems={"shape": "4", "dtype": "int8"})
        self.refused('shape "4y"', problems="4y")

    def test_problems_of_a_manifest_that_nobody_can_read_are_float32(self):
        for manifest in ("{", "[{}]", '{"types": 5, "op": []}', '{"types": ["int8", {}]}'):
            self.assertEqual(self.problems("4x6x5", manifest=manifest), [([1], [[4, 6, 5]], {})])
        types = "// \"types\": [\"float16\"]\n// }"
        for source in ("{", "// warpcall-kernel {\n// {", "void f() {}\n" + types, "// warpcall-kernel {\nx {}"):
            self.assertEqual(self.problems("4", source=source), [([1], [[4]], {})])

    # ---- what comes ----

    def test_events_come_while_the_server_still_judges(self):
        came = threading.Event()

        def parts(context):
            yield LIFE[0]
            self.assertTrue(came.wait(SECONDS_MAX), "the client waits for the end")
            yield from LIFE[1:]

        address = self.serve(parts)
        for call in WAYS:
            came.clear()
            told = []

            def on_event(each, told=told):
                told.append(each)
                came.set()

            report = call(address, on_event=on_event)
            self.assertEqual([type(each) for each in told],
                             [warpcall.PushQueued, warpcall.PushCompiled, warpcall.PushCheck, warpcall.PushTiming,
                              warpcall.PushVerdict])
            self.assertEqual(told[0].before, 2)
            self.assertEqual((report.compiled, report.checks, report.timings, report.verdict),
                             ([told[1]], [told[2]], [told[3]], told[4]))

    def test_the_report_has_what_came(self):
        address = self.serve(LIFE)
        for call in WAYS:
            report = call(address)
            self.assertEqual((report.status, report.passed, report.reason), ("PASSED", True, ""))
            self.assertEqual((report.name, report.digest), ("push:mine@ab12", "ab12"))
            self.assertEqual((report.speedup, report.seed), (2.0, (1 << 64) - 1))
            self.assertIs(report.raise_for_verdict(), report)
            self.assertEqual((report.compiled[0].data_type, report.checks[0].label, report.checks[0].mismatch),
                             ("float16", "64x32 float16 axis=-1", None))
            rows = report.timings[0].rows
            self.assertEqual([(row.name, row.problem, row.median_ns) for row in rows],
                             [("pushed", "64x32 float16 axis=-1", 1500), ("cuda:warp", "64x32 float16 axis=-1", 3000)])
            self.assertEqual(report.benchmark.rows, rows)

    def test_a_run_is_repeated_by_its_seed(self):
        report = by_client(self.serve(LIFE))
        self.assertEqual(self.asked(seed=report.seed).seed, (1 << 64) - 1)

    def test_every_verdict_is_a_report(self):
        for status in STATUSES:
            address = self.serve([compiled(digest="cd"), verdict(status, reason=f"for {status}", seed=5)])
            for call in WAYS:
                report = call(address)
                self.assertEqual((report.status, report.passed, report.reason, report.digest),
                                 (status, False, f"for {status}", "cd"))
                self.assertTrue(repr(report).startswith(f"{status}: for {status}\n"), report)
                with self.assertRaises(warpcall.PushRejected) as raised:
                    report.raise_for_verdict()
                self.assertEqual(str(raised.exception), f"{status}: for {status}")
                self.assertIs(raised.exception.report, report)
                self.assertIsInstance(raised.exception, warpcall.Error)

    def test_a_passed_push_is_a_table(self):
        lines = repr(by_client(self.serve(LIFE))).splitlines()
        self.assertEqual(lines[:2], ["PASSED", "push:mine@ab12, a chip"])
        self.assertEqual(lines[4].split(), ["float16", "sm_90a", "31.0", "ms", "40", "0", "B", "0", "B", "75", "%"])
        self.assertEqual(lines[7].split(), ["64x32", "float16", "axis=-1", "normal", "2048", "0.125", "yes"])
        self.assertEqual(lines[10].split()[3:6], ["pushed", "1.50", "µs"])
        self.assertEqual(lines[11].split()[3:6], ["cuda:warp", "3.00", "µs"])
        self.assertEqual(lines[12:], ["2.00 times as fast as the fastest other",
                                      "64x32 float16 axis=-1: no kernel can take less than 1.00 µs",
                                      f"seed={(1 << 64) - 1} repeats this run"])

    def test_a_wrong_element_is_shown(self):
        report = by_client(self.serve([
            checked(False, max_error=float("inf"), detail="only for x = -inf: got NaN, expected 0.", fill="special",
                    first={"index": [3, 17], "got": float("nan"), "expected": 0.5, "bound": 1e-6}),
            verdict("INCORRECT_NUMERICAL", reason="wrong")]))
        self.assertIn("inf  NO: only for x = -inf: got NaN, expected 0. [3, 17] is nan, expected 0.5 ± 1e-06",
                      repr(report))
        self.assertEqual(report.checks[0].mismatch.index, (3, 17))

        def refuse(constant):
            raise AssertionError(f"{constant} is no JSON")

        data = json.loads(report.to_json(), parse_constant=refuse)
        check = data["events"][0]
        self.assertEqual((check["first"]["got"], check["max_error"], check["first"]["index"]), ("nan", "inf", [3, 17]))
        self.assertEqual(check["problem"]["attributes"], {"axis": -1})
        self.assertEqual(data["verdict"]["status"], "INCORRECT_NUMERICAL")

    def test_what_was_compiled_only_has_no_figures_of_a_gpu(self):
        lines = repr(by_client(self.serve([compiled(registers_per_thread=0, theoretical_occupancy=0),
                                           verdict("NOT_SUPPORTED", seed=5)]))).splitlines()
        self.assertEqual(lines[0], "NOT_SUPPORTED")
        self.assertEqual(lines[3].split(), ["float16", "sm_90a", "31.0", "ms", "-", "-", "-", "-"])
        self.assertEqual(len(lines), 4)  # nothing ran that the seed could repeat

    def test_what_limits_a_verdict_is_said(self):
        report = by_client(self.serve([compiled(cached=True, log="a warning"), timed(cold=False, unstable=True),
                                       verdict(finite_only=True, cached=True)]))
        text = repr(report)
        self.assertTrue(text.startswith("PASSED for finite inputs\n"))
        for words in ("  cached  ", "operands were in the L2 cache", "other work disturbed the times",
                      "the verdict of an earlier push", "the compiler wrote 1 line: see .log"):
            self.assertIn(words, text)
        self.assertNotIn("seed=", text)
        self.assertNotIn("times as fast", text)
        self.assertNotIn("a warning", text)

    # ---- texts of strangers ----

    HOSTILE = "</pre></script><script>alert(1)</script>\x1b]0;title\x07\x1b[2J\u202e\x9b31m\x00&amp;"

    def hostile(self):
        log = (self.HOSTILE + "\n") * ((64 << 10) // len(self.HOSTILE.encode()) - 1)
        self.assertGreater(len(log.encode()), 60 << 10)
        address = self.serve([
            compiled(log=log, arch=self.HOSTILE, kernel=self.HOSTILE),
            checked(False, fill=self.HOSTILE, detail=self.HOSTILE + "\nsecond line"),
            timed(results=[{"implementation": self.HOSTILE, "error": self.HOSTILE}]),
            verdict("COMPILE_ERROR", reason=self.HOSTILE, name=self.HOSTILE,
                    stamp={"device_description": self.HOSTILE})])
        return by_client(address), log

    def test_texts_of_strangers_reach_no_terminal(self):
        report, log = self.hostile()
        self.assertEqual(report.log, log)  # as it came
        shown = repr(report)
        self.assertTrue(all(each.isprintable() or each == "\n" for each in shown))
        self.assertEqual(shown.count("\\x1b]0;title\\x07\\x1b[2J\\u202e\\x9b31m\\x00"), log.count("\n") + 8)
        self.assertIn("\\x00&amp; second line", shown)  # a cell stays on its line

    def test_texts_of_strangers_are_text_in_html(self):
        report, log = self.hostile()
        page = report._repr_html_()
        self.assertNotIn("<script", page)
        root = xml.etree.ElementTree.fromstring(f"<page>{page}</page>")  # well-formed
        self.assertEqual({node.tag for node in root.iter()}, {"page", "p", "table", "tr", "th", "td", "pre"})
        self.assertIn("<script>alert(1)</script>", "".join(root.itertext()))
        self.assertEqual(root.find("pre").text.count("\n"), log.count("\n"))

    def test_one_log_of_several_types_is_shown_once(self):
        report = by_client(self.serve([compiled(log="same"), compiled(data_type=1, log="same"),
                                       compiled(data_type=3, log="b"), verdict("COMPILE_ERROR")]))
        self.assertEqual(report.log, "same\nb")
        self.assertTrue(repr(report).endswith("\n\nsame\nb"))

    def test_machine_code_is_there_if_asked_for(self):
        files = [{"language": "sass", "text": "EXIT"}, {"language": "ptx", "text": "ret;"}]
        report = by_client(self.serve([compiled(files=files), verdict()]), with_files=True)
        self.assertEqual((report.source("sass"), report.source("ptx"), report.source("cuda")), ("EXIT", "ret;", ""))

    # ---- ended early ----

    def ended(self, kind, address, **options):
        """What ends a push by each client."""
        for call in WAYS:
            with self.assertRaises(kind) as raised:
                call(address, **options)
            yield raised.exception

    def test_a_stream_without_a_verdict_is_an_error(self):
        for error in self.ended(warpcall.Internal, self.serve(LIFE[:-1])):
            self.assertIn("the stream ended before the verdict did", error.message)
            self.assertEqual((error.report.status, error.report.passed, len(error.report.timings)), ("", False, 1))
            self.assertTrue(repr(error.report).startswith("no verdict\n"))
            with self.assertRaisesRegex(warpcall.PushRejected, "no reason was given"):
                error.report.raise_for_verdict()
        for error in self.ended(warpcall.Internal, self.serve([])):
            self.assertIn("the stream ended before the answer did", error.message)

    def test_answers_that_contradict_themselves(self):
        for error in self.ended(warpcall.Internal, self.serve([*LIFE, LIFE[0]])):
            self.assertIn("a PushQueued behind the verdict", error.message)
        for data in (b"\xff\xff", b"\x2a\x05\x0a\x04ab", b"\x12\x03\x12\x01\xff"):
            for error in self.ended(warpcall.Internal, self.serve([data])):
                self.assertIn("contradicts itself", error.message)

    def test_events_of_later_versions_are_left_out(self):
        later = b"\x7a\x02\x08\x01"  # field 15
        address = self.serve([later, *LIFE, later])
        for call in WAYS:
            told = []
            self.assertTrue(call(address, on_event=told.append).passed)
            self.assertEqual(len(told), len(LIFE))

    def test_tried_again_only_while_nothing_has_come(self):
        def parts(context):
            if self.stream.calls % 3:
                context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            yield LIFE[1]
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

        for calls, error in zip((3, 6), self.ended(warpcall.Unavailable, self.serve(parts))):
            self.assertEqual((error.message, self.stream.calls), ("gone", calls))
            self.assertEqual(len(error.report.compiled), 1)

    def test_a_server_without_push_is_named(self):
        def parts(context):
            yield from ()
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "")  # as a C++ server says

        addresses = [self.enterContext(FakeServer(never)).address, self.serve(parts)]
        for address in addresses:
            for error in self.ended(warpcall.Unimplemented, address):
                self.assertEqual(error.message, "the server has no method Push: its version is too old")

    def test_other_refusals_have_the_servers_text(self):
        for code, kind in (("UNIMPLEMENTED", warpcall.Unimplemented), ("PERMISSION_DENIED", warpcall.PermissionDenied),
                           ("RESOURCE_EXHAUSTED", warpcall.ResourceExhausted), ("INVALID_ARGUMENT", ValueError)):
            def parts(context, code=code):
                yield from ()
                context.abort(getattr(grpc.StatusCode, code), "no pushes: --push=off")

            for error in self.ended(kind, self.serve(parts)):
                self.assertEqual((error.code, error.message), (code, "no pushes: --push=off"))
                self.assertEqual(error.report.compiled, [])

    def test_unimplemented_after_an_event_is_the_servers(self):
        def parts(context):
            yield LIFE[0]
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "")

        for error in self.ended(warpcall.Unimplemented, self.serve(parts)):
            self.assertEqual(error.message, "")

    def held(self):
        """A server that compiles, and then says nothing."""
        def parts(context):
            yield LIFE[1]
            self.stream.hold()
        return self.serve(parts)

    def test_a_deadline_keeps_what_came(self):
        def parts(context):
            yield LIFE[1]
            returned.wait(SECONDS_MAX)

        address = self.serve(parts)

        def kept(call, seconds):
            returned.clear()
            with self.assertRaises(TimeoutError) as raised:
                call(address, timeout=seconds)
            returned.set()
            return raised.exception.report

        returned = threading.Event()
        for call in WAYS:
            # On a busy machine the event may take longer than the first of these.
            report = next((report for report in (kept(call, seconds) for seconds in (0.5, 4, 20))
                           if report.compiled), None)
            self.assertEqual(report.digest, "ab12")

    def test_what_on_event_raises_ends_the_call(self):
        def raises(each):
            raise KeyError(each.digest)

        for call in WAYS:
            with self.assertRaises(KeyError) as raised:
                call(self.held(), on_event=raises)
            self.assertEqual(raised.exception.report.digest, "ab12")
            self.assertTrue(self.stream.ended.wait(SECONDS_MAX))

    def test_closing_the_client_keeps_what_came(self):
        came = threading.Event()
        client = self.enterContext(warpcall.connect(self.held(), retry=QUICK))
        thread, outcome = in_thread(lambda: client.push(SOURCE, on_event=lambda each: came.set()))
        self.assertTrue(came.wait(SECONDS_MAX))
        client.close()
        error = outcome.result(SECONDS_MAX)
        thread.join()
        self.assertIsInstance(error, warpcall.Cancelled)
        self.assertEqual((error.message, error.report.digest), ("the client is closed", "ab12"))

    def test_a_cancelled_task_ends_the_push_on_the_server(self):
        address = self.held()

        async def cancelled():
            async with warpcall.aio.connect(address, retry=QUICK) as client:
                task = asyncio.current_task()
                try:
                    await client.push(SOURCE, on_event=lambda each: task.cancel())
                except asyncio.CancelledError as error:
                    return error.report

        self.assertEqual(asyncio.run(cancelled()).digest, "ab12")
        self.assertTrue(self.stream.ended.wait(SECONDS_MAX))

    def python(self, *arguments):
        return subprocess.run([sys.executable, *arguments], env=ENVIRONMENT, text=True, capture_output=True,
                              timeout=SECONDS_MAX, check=False, cwd=ROOT)

    def command(self, *arguments, address):
        return subprocess.run([os.path.join(BUILD, "bin", "warpcall"), "--server", address, *arguments],
                              env=ENVIRONMENT, text=True, capture_output=True, timeout=SECONDS_MAX, check=False,
                              cwd=ROOT)

    # ---- documents ----

    def test_the_examples_readme_is_true(self):
        folder = pathlib.Path(ROOT, "client", "examples", "push")
        text = (folder / "README.md").read_text(encoding="utf-8")
        # Other blocks, which show outputs and a signature, name their language.
        blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M)
        command, manifest, program = [block for language, block in blocks if not language]
        self.assertTrue((folder / "gelu_naive.cu").read_text(encoding="utf-8").startswith(manifest))
        self.assertEqual(set(re.findall(r"^\| `(\w+\.cu)`", text, re.M)), {path.name for path in folder.glob("*.cu")})
        done = self.python("-c", program.replace("connect()", f"connect({self.serve(LIFE)!r})"))
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("64x32 float16 axis=-1 normal 0.125\n", done.stdout)
        done = self.command(*command.split()[1:], address=self.serve([verdict("INCORRECT_NUMERICAL")]))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("INCORRECT_NUMERICAL", done.stdout)

    def test_the_readme_is_true(self):
        with open(os.path.join(ROOT, "client", "python", "README.md"), encoding="utf-8") as file:
            section = file.read().partition("## Your own kernel\n")[2].partition("\n## ")[0]
        [program] = re.findall(r"```\n(.*?)```", section, re.S)
        program = "import warpcall\n" + program.replace("127.0.0.1:8470", self.serve(LIFE))
        done = self.python("-c", program)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("64x32 float16 axis=-1 normal 0.125 None\n2.0 <svg", done.stdout)
        self.assertEqual(MESSAGES.PushRequest.FromString(self.stream.request).seed, (1 << 64) - 1)
        problems = MESSAGES.PushRequest.FromString(self.stream.request).problems
        self.assertEqual([list(each.inputs[0].shape) for each in problems], [[4096, 1024]] * 3)  # gelu.cu's three types

    # ---- beside the command ----

    def test_a_report_is_what_the_command_prints(self):
        """`warpcall push --json` and `to_dict`: every member."""
        def broken(context):
            yield LIFE[1]
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")

        wrong = checked(False, max_error=float("inf"), first={"index": [3], "got": float("nan"), "bound": 1e-6})
        not_loaded = compiled(registers_per_thread=0, theoretical_occupancy=0)
        later = b"\x7a\x02\x08\x01"  # field 15
        for parts in ([later, *LIFE], [wrong, verdict("NONDETERMINISTIC", reason="so")],
                      [not_loaded, verdict("NOT_SUPPORTED", deterministic=True)], [verdict("INTERNAL_ERROR")], broken):
            self.expect_alike(self.serve(parts), SOURCE)
        one_line = f"\ufeff// warpcall-kernel {json.dumps(MANIFEST)}\n__global__ void mine() {{}}\n"
        self.expect_alike(self.serve(LIFE), one_line)

    def expect_alike(self, address, source):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "mine.cu")
            with open(path, "w", encoding="utf-8") as file:
                file.write(source)
            with warpcall.connect(address, timeout=SECONDS_MAX) as client:
                try:
                    report = client.push(path)
                except warpcall.InvalidArgument as error:
                    report = error.report
            done = self.command("--json", "push", path, address=address)
        said = json.loads(done.stdout)
        members = json.loads(json.dumps(report.to_dict(), allow_nan=False))
        self.maxDiff = None
        self.assertEqual({name: said.get(name) for name in members}, members)
        self.assertLessEqual(set(said) - set(members),
                             {"file", "name", "op", "client_version", "server", "error", "exit_status"})

    def test_an_interrupted_push_has_what_came(self):
        program = ("import sys, warpcall\n"
                   "with warpcall.connect(sys.argv[1]) as gpu:\n"
                   "    try:\n"
                   "        gpu.push(sys.argv[2], on_event=lambda each: print('came', flush=True))\n"
                   "    except KeyboardInterrupt as error:\n"
                   "        print(error.report)\n")
        with tempfile.NamedTemporaryFile("w", suffix=".cu") as source:
            source.write(SOURCE)
            source.flush()
            command = [sys.executable, "-c", program, self.held(), source.name]
            with subprocess.Popen(command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE) as process:
                self.assertEqual(process.stdout.readline(), "came\n")
                process.send_signal(signal.SIGINT)
                out, errors = process.communicate(timeout=SECONDS_MAX)
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertIn("sm_90a", out)
        self.assertTrue(self.stream.ended.wait(SECONDS_MAX))


if __name__ == "__main__":
    main()
