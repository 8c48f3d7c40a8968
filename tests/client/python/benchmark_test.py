"""Benchmarks while they run: rows are reported when they come, and kept however the call ends. On a server that answers
part by part as a test says, and on the real one."""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import unittest
from unittest import mock

from support import ENVIRONMENT, SECONDS_MAX, FakeServer, Messages, RealServer, before_the_end, grpc, in_thread, main
import warpcall
from warpcall import _benchmark
from progress_test import Bar
from ways import QUICK

MESSAGES = Messages()


def part(*rows, **fields):
    """The bytes of a BenchmarkResponse with rows of these names."""
    response = MESSAGES.BenchmarkResponse(**fields)
    for name in rows:
        response.results.add(implementation=name, median_ns=1500)
    return response.SerializeToString()


LAST = part("c", device="chip", ceiling_bytes_per_second=1e9, flops_ceiling=2e9,
            stamp=MESSAGES.RunStamp(driver="1", started_unix_ns=5))


def by_client(address, shapes="4x4", **options):
    with warpcall.connect(address, timeout=60, retry=QUICK) as client:
        return client.benchmark("gelu", shapes, **options)


def by_aio(address, shapes="4x4", **options):
    async def take():
        async with warpcall.aio.connect(address, timeout=60, retry=QUICK) as client:
            return await client.benchmark("gelu", shapes, **options)
    return asyncio.run(take())


WAYS = (by_client, by_aio)


def names(report):
    return [row.implementation for row in report.rows]


class Stream:
    """Answers each call with the items of `parts(context)`; counts calls, and signals when one has ended."""

    def __init__(self, parts):
        self.parts, self.calls, self.ended = parts, 0, threading.Event()

    def __call__(self, requests, context):
        self.calls += 1
        context.add_callback(self.ended.set)
        self.request = next(iter(requests))
        yield from self.parts(context)

    def hold(self):
        """Until the client ends the call; longer than a test waits for that."""
        self.ended.wait(2 * SECONDS_MAX)


def never(request, context):
    context.abort(grpc.StatusCode.INTERNAL, "Benchmark was called")


class BenchmarkTest(unittest.TestCase):
    def serve(self, parts, whole=never):
        self.stream = Stream(parts)
        return self.enterContext(FakeServer(whole, self.stream)).address

    def held_after_a_row(self):
        """A server that sends row "a" and then nothing."""
        def parts(context):
            yield part("a", device="chip")
            self.stream.hold()
        return self.serve(parts)

    def test_rows_are_told_while_the_server_still_measures(self):
        came = threading.Event()

        def parts(context):
            yield part("a")
            self.assertTrue(came.wait(SECONDS_MAX), "the client waits for the end")
            yield part("b")
            yield LAST

        address = self.serve(parts)
        for call in WAYS:
            came.clear()
            told = []

            def on_row(row, told=told):
                told.append((row.implementation, row.problem, row.median_ns))
                came.set()

            report = call(address, on_row=on_row)
            self.assertEqual(told, [(name, "4x4", 1500) for name in "abc"])
            self.assertEqual(names(report), ["a", "b", "c"])

    def test_what_is_of_the_whole_run_may_come_with_any_part(self):
        def parts(context):
            yield LAST
            yield part("d", ceiling_bytes_per_second=3e9)
            yield part()

        address = self.serve(parts)
        for call in WAYS:
            report = call(address, ["4x4", "5"])
            self.assertEqual(names(report), ["c", "d"] * 2)
            self.assertEqual(report.device, "chip")
            self.assertEqual(report.ceilings, {"4x4": 3e9, "5": 3e9})
            self.assertEqual(report.flops_ceilings, {"4x4": 2e9, "5": 2e9})
            self.assertEqual([stamp.driver for stamp in report.stamps.values()], ["1", "1"])

    def test_ranks_come_last(self):
        def parts(context):
            for name in "ab":
                response = MESSAGES.BenchmarkResponse(ceiling_bytes_per_second=2e9)
                response.results.add(implementation=name, unstable=name == "a", median_ns=9.0,
                                     bytes_per_second=1e9, fraction_of_ceiling=0.5)
                yield response.SerializeToString()
            verdicts = [{"a": "fastest", "b": "slower by 9 %"}, {"b": "fastest"}][self.stream.calls % 2 - 1]
            yield part(device="chip", ceiling_bytes_per_second=4e9, verdicts=verdicts)

        address = self.serve(parts)
        for call in WAYS:
            told = []
            report = call(address, ["4x4", "4x4"], on_row=told.append)
            self.assertEqual([row.verdict for row in told], [""] * 4)
            self.assertEqual([row.verdict for row in report.rows],
                             ["fastest", "slower by 9 %", "", "fastest"])
            self.assertEqual([row.fraction_of_ceiling for row in report.rows], [0.25] * 4)

    def test_shares_of_reads_say_so(self):
        def parts(context):
            reads = 0 if self.stream.calls % 2 == 0 else 5e9
            response = MESSAGES.BenchmarkResponse(ceiling_bytes_per_second=4e9)
            response.results.add(implementation="a", median_ns=9.0, bytes_per_second=1e9,
                                 fraction_of_ceiling=0.25)
            yield response.SerializeToString()
            yield part(device="chip", read_ceiling_bytes_per_second=reads)

        address = self.serve(parts)
        for call in WAYS:
            report = call(address, ["4x4", "5"])
            self.assertEqual(report.read_ceilings, {"4x4": 5e9, "5": 0.0})
            self.assertEqual(report.ceilings, {"4x4": 4e9, "5": 4e9})
            self.assertEqual([row.fraction_of_ceiling for row in report.rows], [0.2, 0.25])
            self.assertEqual(report.to_dict()["read_ceilings"], report.read_ceilings)
            self.assertIn("20.0 % of reads", str(report))
            self.assertIn("25.0 % of copy", str(report))

    def test_a_problem_may_be_asked_about_twice(self):
        address = self.serve(lambda context: iter([LAST]))
        for call in WAYS:
            self.assertEqual(names(call(address, ["4x4", "4x4"])), ["c", "c"])

    def test_the_bar_shows_what_came_last(self):
        def parts(context):
            response = MESSAGES.BenchmarkResponse.FromString(part("a", "b", "c"))
            response.results[1].error = "no such unit"
            response.results[2].error, response.results[2].predicted_ns = "too slow", 4e9
            yield response.SerializeToString()

        address = self.serve(parts)
        for call in WAYS:
            Bar.made.clear()
            with mock.patch.dict(sys.modules, {"tqdm": mock.Mock(), "tqdm.auto": mock.Mock(tqdm=Bar)}):
                call(address, ["4x4", "5"], progress=True)
            (bar,) = Bar.made
            news = ["a 1.50 µs", "b did not run", "c skipped"]
            self.assertEqual(bar.notes, [(done, text) for done in (0, 1) for text in news])
            self.assertEqual((bar.total, bar.done, bar.closed), (2, 2, True))

    def test_a_server_without_the_stream_is_asked_for_all_at_once(self):
        server = self.enterContext(FakeServer(lambda request, context: part("a", "b", device="chip")))
        for call in WAYS:
            told = []
            self.assertEqual(names(call(server.address, on_row=told.append)), ["a", "b"])
            self.assertEqual([row.implementation for row in told], ["a", "b"])

    def test_a_problem_that_no_row_takes_is_refused_as_ever(self):
        def parts(context):
            yield from ()
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "by the stream")

        def whole(request, context):
            self.assertEqual(request, self.stream.request)
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no row takes it")

        address = self.serve(parts, whole)
        for call in WAYS:
            with self.assertRaises(warpcall.Unimplemented) as raised:
                call(address)
            self.assertEqual(raised.exception.message, "no row takes it")
            self.assertEqual(raised.exception.report.rows, [])
            self.assertIsNone(raised.exception.__context__)

    def test_tried_again_only_while_nothing_has_come(self):
        def parts(context):
            if self.stream.calls % 3:
                context.abort(grpc.StatusCode.UNAVAILABLE, "not yet")
            yield part("a")
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

        address = self.serve(parts)
        for calls, call in zip((3, 6), WAYS):
            with self.assertRaises(warpcall.Unavailable) as raised:
                call(address)
            self.assertEqual((raised.exception.message, self.stream.calls), ("gone", calls))
            self.assertEqual(names(raised.exception.report), ["a"])

    def test_unimplemented_after_a_row_is_the_end(self):
        def parts(context):
            yield part("a")
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no more of it")

        address = self.serve(parts)
        for call in WAYS:
            with self.assertRaises(warpcall.Unimplemented) as raised:
                call(address)
            self.assertEqual(names(raised.exception.report), ["a"])

    def test_answers_that_contradict_themselves(self):
        answers = [([part("a"), part("a")], "a second result of a", ["a"]),
                   ([], "the stream ended before the answer did", []),
                   ([part("a"), b"\xff"], "", ["a"])]
        for parts, message, kept in answers:
            address = self.serve(lambda context, parts=parts: iter(parts))
            for call in WAYS:
                with self.assertRaises(warpcall.Internal) as raised:
                    call(address)
                self.assertIn(message, raised.exception.message)
                self.assertEqual(names(raised.exception.report), kept)

    # ---- ended early ----

    def test_a_deadline_keeps_what_came(self):
        returned = threading.Event()

        def parts(context):
            yield part("a", device="chip")
            returned.wait(SECONDS_MAX)

        address = self.serve(parts)

        def kept(call, seconds):
            returned.clear()
            with self.assertRaises(TimeoutError) as raised:
                call(address, timeout=seconds)
            returned.set()
            return raised.exception.report

        for call in WAYS:
            # On a busy machine the row may take longer than the first of these.
            report = next((report for report in (kept(call, seconds) for seconds in (0.5, 4, 20))
                           if report.rows), None)
            self.assertIsNotNone(report)
            self.assertEqual((names(report), report.device), (["a"], "chip"))

    def test_earlier_problems_are_kept_too(self):
        def parts(context):
            if self.stream.calls % 2 == 0:
                context.abort(grpc.StatusCode.INVALID_ARGUMENT, "no")
            yield LAST

        address = self.serve(parts)
        for call in WAYS:
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                call(address, ["4x4", "5"])
            self.assertEqual(names(raised.exception.report), ["c"])
            self.assertEqual(raised.exception.report.to_dict()["ceilings"], {"4x4": 1e9})

    def raise_of(self, row):
        raise KeyError(row.implementation)

    def check_ended(self, error):
        """While the error, and all that it leads to, is still there, and the client is open."""
        self.assertEqual(names(error.report), ["a"])
        self.assertTrue(self.stream.ended.wait(SECONDS_MAX))

    def test_what_on_row_raises_ends_the_call(self):
        with warpcall.connect(self.held_after_a_row()) as client:
            try:
                client.benchmark("gelu", "4x4", on_row=self.raise_of)
            except KeyError as error:
                self.check_ended(error)
            else:
                self.fail("nothing was raised")

    def test_what_on_row_raises_ends_the_call_of_asyncio(self):
        async def raises():
            async with warpcall.aio.connect(self.held_after_a_row()) as client:
                try:
                    await client.benchmark("gelu", "4x4", on_row=self.raise_of)
                except KeyError as error:
                    await asyncio.to_thread(self.check_ended, error)
                else:
                    self.fail("nothing was raised")

        asyncio.run(raises())

    def test_closing_the_client_keeps_what_came(self):
        came = threading.Event()
        client = self.enterContext(warpcall.connect(self.held_after_a_row(), retry=QUICK))
        thread, outcome = in_thread(
            lambda: client.benchmark("gelu", "4x4", on_row=lambda row: came.set()))
        self.assertTrue(came.wait(SECONDS_MAX))
        client.close()
        error = outcome.result(SECONDS_MAX)
        thread.join()
        self.assertIsInstance(error, warpcall.Cancelled)
        self.assertEqual((error.message, names(error.report)), ("the client is closed", ["a"]))

    def test_a_cancelled_task_keeps_what_came(self):
        address = self.held_after_a_row()

        async def cancelled():
            async with warpcall.aio.connect(address, retry=QUICK) as client:
                task = asyncio.current_task()
                try:
                    await client.benchmark("gelu", "4x4", on_row=lambda row: task.cancel())
                except asyncio.CancelledError as error:
                    return error.report

        self.assertEqual(names(asyncio.run(cancelled())), ["a"])
        self.assertTrue(self.stream.ended.wait(SECONDS_MAX))

    def test_an_interrupted_benchmark_has_what_came(self):
        program = ("import sys, warpcall\n"
                   "with warpcall.connect(sys.argv[1]) as gpu:\n"
                   "    try:\n"
                   "        gpu.benchmark('gelu', '4x4', on_row=lambda row: print('came', flush=True))\n"
                   "    except KeyboardInterrupt as error:\n"
                   "        print(error.report)\n")
        command = [sys.executable, "-c", program, self.held_after_a_row()]
        with subprocess.Popen(command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE) as process:
            self.assertEqual(process.stdout.readline(), "came\n")
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=SECONDS_MAX)
        self.assertTrue(self.stream.ended.wait(SECONDS_MAX))
        self.assertEqual((process.returncode, errors), (0, ""))
        self.assertIn("gelu of float32 on chip", out)
        self.assertIn("1.50 µs", out)

    def test_figures_that_are_no_numbers_are_null_for_programs(self):
        response = MESSAGES.BenchmarkResponse.FromString(LAST)
        response.results[0].max_error = float("inf")
        response.results[0].relative_error = float("nan")
        address = self.serve(lambda context: [response.SerializeToString()])
        with warpcall.connect(address) as client:
            report = client.benchmark("gelu", "4x4").to_dict()
        row = json.loads(json.dumps(report, allow_nan=False))["rows"][0]
        self.assertEqual((row["max_error"], row["relative_error"], row["median_ns"]), (None, None, 1500))

    # ---- the real server ----

    def test_the_real_server_sends_row_by_row(self):
        server = self.enterContext(RealServer())
        for call in WAYS:
            told = []
            with mock.patch.object(_benchmark, "decoded", side_effect=_benchmark.decoded) as parts:
                report = call(server.address, "300x40", device="cpu", iterations=3,
                              warmup_iterations=1, on_row=told.append)
            self.assertGreater(parts.call_count, 1)
            self.assertEqual([row.verdict for row in told], [""] * len(told))
            self.assertEqual(before_the_end(told), before_the_end(report.rows))
            self.assertGreater(len(told), 2)
            # Stable rows have a verdict, or all are too noisy on a machine as busy as this.
            stable = [row.implementation for row in report.rows if not row.error and not row.unstable]
            self.assertLessEqual(set(stable), {row.implementation for row in report.rows if row.verdict})
            self.assertGreater(report.ceilings["300x40"], 0)
            self.assertTrue(report.stamps["300x40"].device_description)


if __name__ == "__main__":
    main()
