"""Ends of the Python client's calls: every status by its class, retries and their limits,
deadlines, cancelling, closing, servers that are not there or come later; and the metadata that it
sends beside the request. Against a server of grpcio's that does as the test says."""

import asyncio
import concurrent.futures
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

from support import (ENVIRONMENT, FAST, FakeServer, Messages, eventually, grpc, in_thread, main,
                     np)
import warpcall
from warpcall._stream import Session
from warpcall import _retry
from ways import QUICK, REPLY, WAYS, Script, X, by_future, by_run

CLASSES = {
    "INVALID_ARGUMENT": warpcall.InvalidArgument, "NOT_FOUND": warpcall.NotFound,
    "UNIMPLEMENTED": warpcall.Unimplemented, "RESOURCE_EXHAUSTED": warpcall.ResourceExhausted,
    "DEADLINE_EXCEEDED": warpcall.DeadlineExceeded, "CANCELLED": warpcall.Cancelled,
    "UNAVAILABLE": warpcall.Unavailable, "UNAUTHENTICATED": warpcall.Unauthenticated,
    "PERMISSION_DENIED": warpcall.PermissionDenied, "INTERNAL": warpcall.Internal,
    "DATA_LOSS": warpcall.Error,
}


class StatusTest(unittest.TestCase):
    def test_every_status_has_its_class(self):
        once = warpcall.Retry(attempts_max=1)
        for code, cls in CLASSES.items():
            handler = Script((code, None), repeat=True)
            with FakeServer(handler) as server:
                for connect, call in WAYS:
                    with connect(server.address, timeout=60, retry=once) as c:
                        with self.assertRaises(cls) as raised:
                            call(c)
                    error = raised.exception
                    self.assertEqual((type(error), error.code), (cls, code))
                    self.assertEqual(error.message, f"refused with {code}")
                    self.assertIsNone(error.retry_after)
            self.assertEqual(handler.calls, len(WAYS))

    def test_what_was_refused_for_a_while_is_tried_again(self):
        for refusals in ([("UNAVAILABLE", None)] * 4, [("RESOURCE_EXHAUSTED", 1)] * 3,
                         [("UNAVAILABLE", 0), ("RESOURCE_EXHAUSTED", 2), ("UNAVAILABLE", None)]):
            for connect, call in WAYS:
                handler = Script(*refusals)
                with FakeServer(handler) as server, \
                        connect(server.address, timeout=60, retry=QUICK) as client:
                    np.testing.assert_array_equal(call(client), X)
                self.assertEqual(handler.calls, len(refusals) + 1)

    def test_refusals_that_stand(self):
        for refusal, attempts, after, retryable in [
                (("UNAVAILABLE", None), 5, None, True), (("UNAVAILABLE", -1), 1, None, False),
                (("RESOURCE_EXHAUSTED", None), 1, None, False),
                (("RESOURCE_EXHAUSTED", -1), 1, None, False),
                (("RESOURCE_EXHAUSTED", "x"), 1, None, False),
                (("RESOURCE_EXHAUSTED", 3_600_000), 1, 3600.0, True),
                (("INTERNAL", 1), 1, 0.001, True)]:
            for connect, call in WAYS:
                handler = Script(refusal, repeat=True)
                with FakeServer(handler) as server, \
                        connect(server.address, timeout=60, retry=QUICK) as client:
                    with self.assertRaises(CLASSES[refusal[0]]) as raised:
                        call(client)
                self.assertEqual(handler.calls, attempts, refusal)
                self.assertEqual(raised.exception.retry_after, after)
                self.assertEqual(raised.exception.retryable, retryable)
                self.assertEqual(raised.exception.request_id, "warpcall-0")

    def test_no_attempt_begins_after_the_deadline(self):
        handler = Script(("RESOURCE_EXHAUSTED", 50_000), repeat=True)
        for connect, call in WAYS:
            with FakeServer(handler) as server, connect(server.address, timeout=40) as client:
                begin = time.monotonic()
                with self.assertRaises(warpcall.ResourceExhausted) as raised:
                    call(client)
                self.assertLess(time.monotonic() - begin, 30)  # it did not wait
                self.assertEqual(raised.exception.retry_after, 50)

    def test_a_budget_bounds_what_a_server_in_trouble_gets(self):
        handler = Script(("UNAVAILABLE", None), repeat=True)
        retry = warpcall.Retry(backoff_initial=0.001, backoff_max=0.002, budget_max=3)
        with FakeServer(handler) as server, warpcall.connect(server.address, retry=retry) as client:
            for _ in range(10):
                with self.assertRaises(warpcall.Unavailable):
                    client.identity(X)
        self.assertEqual(handler.calls, 10 + 3)

    def test_an_answer_that_is_none(self):
        with FakeServer(lambda request, context: b"\x0a\x7f") as server:
            for connect, call in WAYS:
                with connect(server.address, timeout=60) as client:
                    with self.assertRaises(warpcall.Internal):
                        call(client)


class ScheduleTest(unittest.TestCase):
    """The rules of client/cpp/rpc/retry.h, with times made up."""

    def schedule(self, **options):
        retry = warpcall.Retry(**options)
        return _retry.Schedule(retry, _retry.Budget(retry))

    def test_pauses_grow_and_are_spread(self):
        schedule = self.schedule(attempts_max=9)
        for expected in (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0):
            pause = schedule.next("UNAVAILABLE", None, 0, None)
            self.assertTrue(0.8 * expected <= pause <= 1.2 * expected, (pause, expected))
        self.assertIsNone(schedule.next("UNAVAILABLE", None, 0, None))
        self.assertEqual(schedule.attempts, 9)

    def test_a_pushback_is_obeyed_and_starts_the_backoff_afresh(self):
        schedule = self.schedule(attempts_max=9)
        schedule.next("UNAVAILABLE", None, 0, None)
        schedule.next("UNAVAILABLE", None, 0, None)
        self.assertEqual(schedule.next("RESOURCE_EXHAUSTED", 7.0, 0, None), 7.0)
        self.assertLessEqual(schedule.next("UNAVAILABLE", None, 0, None), 0.06)
        self.assertIsNone(schedule.next("UNAVAILABLE", -1.0, 0, None))
        self.assertIsNone(schedule.next("UNAVAILABLE", 61.0, 0, None))

    def test_the_deadline(self):
        self.assertIsNone(self.schedule().next("UNAVAILABLE", 1.0, 9.0, 10.0))
        self.assertEqual(self.schedule().next("UNAVAILABLE", 1.0, 8.9, 10.0), 1.0)

    def test_successes_refill_the_budget(self):
        budget = _retry.Budget(warpcall.Retry(budget_max=1))
        self.assertTrue(budget.take())
        self.assertFalse(budget.take())
        for _ in range(11):
            budget.add_success()
        self.assertTrue(budget.take())


def is_pausing(client, handler):
    """Returns True before a retry; the C++ client cannot show it, but pauses soon."""
    return handler.calls == 1 if FAST else client._calls._pauses


class EndsTest(unittest.TestCase):
    def test_nobody_listens(self):
        for address in ("127.0.0.1:1", "unix:/nonexistent/socket"):
            for connect, call in WAYS:
                with connect(address, timeout=60, retry=QUICK) as client:
                    with self.assertRaises(warpcall.Unavailable):
                        call(client)

    def test_a_server_that_comes_up_later(self):
        retry = warpcall.Retry(attempts_max=10_000, backoff_initial=0.01, backoff_max=0.05,
                               budget_max=10_000)
        for connect, call in WAYS:
            with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
                path = os.path.join(folder, "socket")
                nobody = stack.enter_context(socket.socket(socket.AF_UNIX))
                nobody.bind(path)
                nobody.listen()

                def come_up(path=path, nobody=nobody, stack=stack):
                    nobody.accept()[0].close()  # the first attempt fails
                    nobody.close()
                    os.unlink(path)
                    stack.enter_context(FakeServer(Script(), address=f"unix:{path}"))

                thread = threading.Thread(target=come_up)
                thread.start()
                stack.callback(thread.join)
                with connect(f"unix:{path}", timeout=60, retry=retry) as client:
                    np.testing.assert_array_equal(call(client), X)

    def test_a_server_that_does_not_answer_in_time(self):
        release = threading.Event()

        def handler(request, context):
            release.wait(120)
            return REPLY

        with FakeServer(handler) as server:
            for connect, call in WAYS:
                with connect(server.address, timeout=0.2) as client:
                    with self.assertRaises(warpcall.DeadlineExceeded) as raised:
                        call(client)
                    self.assertIsInstance(raised.exception, TimeoutError)
            with warpcall.connect(server.address, timeout=60) as client:
                with self.assertRaises(warpcall.DeadlineExceeded):
                    client.identity(X, timeout=0.2)
            release.set()

    def test_tokens_that_no_header_holds(self):
        for token in ("", "two words", "a\nb", "\u00e4", "\ufeffa"):
            with self.assertRaises(warpcall.InvalidArgument):
                warpcall.connect("x", token=token)

    def test_timeouts_that_are_no_numbers(self):
        with warpcall.connect("x") as client, self.assertRaisesRegex(TypeError, "timeout is '5'"):
            client.identity(X, timeout="5")
        with self.assertRaises(TypeError):
            warpcall.connect("x", timeout="5")

    def test_timeouts_that_are_none(self):
        for timeout in (0, -1, float("nan")):
            with self.assertRaises(warpcall.InvalidArgument):
                warpcall.connect("x", timeout=timeout)
        for options in ({"connections": 0}, {"connections": 65}, {"stall_timeout": 0}):
            with self.assertRaises(warpcall.InvalidArgument):
                warpcall.connect("x", **options)
        with FakeServer(Script()) as server, warpcall.connect(server.address, timeout=60) as client:
            for timeout in (float("inf"), 1e9, 1e10, 1e300):
                np.testing.assert_array_equal(client.identity(X, timeout=timeout), X)
        for stall_timeout in (float("inf"), 1e7, 1e-9):
            with FakeServer(Script()) as server, \
                    warpcall.connect(server.address, timeout=60, stall_timeout=stall_timeout) as client:
                np.testing.assert_array_equal(client.identity(X), X)

    def test_close_ends_what_is_under_way_and_leaves_no_thread(self):
        before = set(threading.enumerate())
        entered = threading.Semaphore(0)
        release = threading.Event()

        def handler(request, context):
            entered.release()
            release.wait(120)
            return REPLY

        server = FakeServer(handler)
        of_server = set(threading.enumerate()) - before
        client = warpcall.connect(server.address)
        futures = [client.submit("identity", X) for _ in range(3)]
        thread, outcome = in_thread(lambda: client.identity(X))
        for _ in range(4):
            entered.acquire()
        client.close()
        for future in futures:
            self.assertIsInstance(future.exception(60), warpcall.Cancelled)
        self.assertIsInstance(outcome.result(60), warpcall.Cancelled)
        thread.join()
        for call in (by_run, by_future):
            with self.assertRaises(warpcall.Cancelled) as raised:
                call(client)
            self.assertIn("closed", str(raised.exception))
        release.set()
        server.__exit__()
        before |= of_server
        self.assertTrue(eventually(lambda: set(threading.enumerate()) <= before),
                        threading.enumerate())

    def test_close_ends_pauses(self):
        handler = Script(("UNAVAILABLE", 50_000), repeat=True)
        with FakeServer(handler) as server:
            client = warpcall.connect(server.address)
            future = client.submit("identity", X)
            self.assertTrue(eventually(lambda: is_pausing(client, handler)))
            client.close()
            self.assertIsInstance(future.exception(60), warpcall.Cancelled)
            self.assertFalse(any(isinstance(thread, threading.Timer)
                                 for thread in threading.enumerate()))


    def test_close_ends_pauses_of_asyncio(self):
        handler = Script(("UNAVAILABLE", 50_000), repeat=True)

        async def end(address):
            client = warpcall.aio.connect(address, timeout=600)
            task = asyncio.create_task(client.identity(X))
            while client._ending is None:
                await asyncio.sleep(0)
            await client.close()
            with self.assertRaises(warpcall.Cancelled):
                await asyncio.wait_for(task, 40)  # the pause is fifty seconds

        with FakeServer(handler) as server:
            asyncio.run(end(server.address))
        self.assertEqual(handler.calls, 1)


class CancelTest(unittest.TestCase):
    def handler(self, request, context):
        self.entered.release()
        cancelled = threading.Event()
        if not context.add_callback(cancelled.set):
            cancelled.set()
        if cancelled.wait(120):
            self.cancelled.release()
        return REPLY

    def setUp(self):
        self.entered, self.cancelled = threading.Semaphore(0), threading.Semaphore(0)

    def test_a_cancelled_future_ends_the_call(self):
        with FakeServer(self.handler) as server, warpcall.connect(server.address) as client:
            future = client.submit("identity", X)
            self.assertTrue(self.entered.acquire(timeout=60))
            self.assertTrue(future.running())
            waiter = concurrent.futures.ThreadPoolExecutor(1)
            waited = waiter.submit(concurrent.futures.wait, [future])
            self.assertTrue(future.cancel())
            self.assertTrue(future.cancel())
            self.assertTrue(future.cancelled())
            self.assertTrue(self.cancelled.acquire(timeout=60), "the server was not told")
            self.assertEqual(len(waited.result(60).done), 1)
            with self.assertRaises(concurrent.futures.CancelledError):
                future.result()
            waiter.shutdown()

    def test_what_is_done_cannot_be_cancelled(self):
        with FakeServer(Script()) as server, warpcall.connect(server.address) as client:
            future = client.submit("identity", X)
            future.result(60)
            self.assertFalse(future.cancel())
            self.assertFalse(future.cancelled())

    def test_a_future_that_waits_to_try_again_can_be_cancelled(self):
        handler = Script(("UNAVAILABLE", 50_000), repeat=True)
        with FakeServer(handler) as server, warpcall.connect(server.address) as client:
            future = client.submit("identity", X)
            self.assertTrue(eventually(lambda: is_pausing(client, handler)))
            self.assertTrue(future.cancel())
            self.assertEqual(handler.calls, 1)
            if not FAST:  # nor does the pause keep the inputs
                self.assertFalse(client._calls._pauses)

    def test_a_cancelled_task_ends_the_call(self):
        async def cancel(address):
            async with warpcall.aio.connect(address) as client:
                task = asyncio.create_task(client.identity(X))
                await asyncio.get_running_loop().run_in_executor(None, self.entered.acquire)
                task.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await task

        with FakeServer(self.handler) as server:
            asyncio.run(cancel(server.address))
            self.assertTrue(self.cancelled.acquire(timeout=60), "the server was not told")

    def test_map_that_fails_cancels_the_rest(self):
        def batches():
            yield from [X, X]
            self.assertTrue(self.entered.acquire(timeout=60) and self.entered.acquire(timeout=60))
            yield X.astype(np.float64)

        with FakeServer(self.handler) as server, warpcall.connect(server.address) as client:
            with self.assertRaises(warpcall.InvalidArgument):
                next(client.map("identity", batches(), window=3))
            for _ in range(2):
                self.assertTrue(self.cancelled.acquire(timeout=60), "the server was not told")

    def test_a_stream_whose_call_was_not_made_sends_nothing(self):
        session = Session(b"", [])
        session.drop()
        self.assertEqual(list(session.messages()), [])

    def test_ctrl_c_ends_the_call(self):
        # A call that is interrupted while it is made belongs to nobody yet, and gRPC goes on with it: the test presses
        # Ctrl-C when the caller waits.
        program = ("import linecache, os, signal, sys, threading, time, numpy, warpcall\n"
                   "client = warpcall.connect(sys.argv[1])\n"
                   "def waits():\n"
                   "    at = sys._current_frames()[threading.main_thread().ident]\n"
                   "    line = linecache.getline(at.f_code.co_filename, at.f_lineno)\n"
                   "    while at and at.f_code.co_name not in ('result_of',): at = at.f_back\n"
                   "    return at is not None or 'next_event' in line or '_native.' in line\n"
                   "def press():\n"
                   "    sys.stdin.readline()\n"
                   "    while not waits(): time.sleep(0.001)\n"
                   "    os.kill(os.getpid(), signal.SIGINT)\n"
                   "threading.Thread(target=press, daemon=True).start()\n"
                   "x = numpy.zeros(int(sys.argv[2]), 'f4')\n"
                   "try:\n"
                   "    client.identity(x)\n"
                   "except KeyboardInterrupt:\n"
                   "    print('interrupted', flush=True)\n"
                   "sys.stdin.readline()\n")  # as a prompt would, it goes on: the call must not
        for elements in (4, 5 << 20, 17 << 20):  # the second streams, or the third
            with FakeServer(self.handler, self.handler) as server:
                process = subprocess.Popen(
                    [sys.executable, "-c", program, server.address, str(elements)], text=True,
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=ENVIRONMENT)
                self.assertTrue(self.entered.acquire(timeout=60))
                process.stdin.write("\n")
                process.stdin.flush()
                self.assertEqual(process.stdout.readline(), "interrupted\n")
                self.assertTrue(self.cancelled.acquire(timeout=60), "the server was not told")
                process.communicate("\n")
                self.assertEqual(process.returncode, 0)


class SentTest(unittest.TestCase):
    def metadata_of(self, call, **options):
        seen = []

        def handler(request, context):
            seen.append(dict(context.invocation_metadata()))
            return REPLY

        def refuse(requests, context):
            handler(requests, context)
            context.abort(grpc.StatusCode.NOT_FOUND, "seen")

        with FakeServer(handler, refuse) as server, \
                warpcall.connect(server.address, **options) as client:
            try:
                call(client)
            except warpcall.NotFound:
                pass
        return seen[0]

    def test_a_token_and_the_callers_trace(self):
        context = types.SimpleNamespace(is_valid=True, trace_id=0xABC, span_id=0xDEF, trace_flags=1)
        nothing = types.SimpleNamespace(is_valid=False)
        here = threading.get_ident()  # a trace belongs to the thread, or task, that has it
        span = types.SimpleNamespace(
            get_span_context=lambda: context if threading.get_ident() == here else nothing)
        module = types.SimpleNamespace(get_current_span=lambda: span)
        with mock.patch.dict(sys.modules, {"opentelemetry.trace": module}):
            def by_stream(client):
                return client.submit("identity", np.zeros(17 << 20, np.float32)).result(60)

            for call in (by_run, by_future, by_stream):
                for options in ({"token": "secret"}, {}):
                    sent = self.metadata_of(call, **options)
                    self.assertEqual(sent.get("authorization"), options and "Bearer secret" or None)
                    self.assertEqual(sent["traceparent"], f"00-{0xABC:032x}-{0xDEF:016x}-01")
            context.is_valid = False
            self.assertNotIn("traceparent", self.metadata_of(by_run))
        self.assertNotIn("traceparent", self.metadata_of(by_run))
        self.assertNotIn("authorization", self.metadata_of(by_run))

    def test_the_ceiling_is_asked_for_once(self):
        devices = Messages().ListDevicesResponse()
        devices.devices.add(name="cpu", measured_bandwidth_bytes_per_second=1e9)
        asked = []

        def handler(request, context):
            asked.append(request)
            return REPLY if request else devices.SerializeToString()

        with FakeServer(handler) as server, warpcall.connect(server.address, timeout=60) as client:
            for _ in range(2):
                y = client.identity(X)
                self.assertEqual((y.ceiling_bytes_per_second, y.percent_of_ceiling), (1e9, 0))
        self.assertEqual(asked.count(b""), 1)

    def test_a_ceiling_that_was_known_stays_known(self):
        lists = [Messages().ListDevicesResponse() for _ in range(2)]
        lists[0].devices.add(name="cpu", measured_bandwidth_bytes_per_second=1e9)
        lists[1].devices.add(name="cpu")  # it is being measured again
        answers = [devices.SerializeToString() for devices in lists]
        with FakeServer(lambda request, context: REPLY if request else answers.pop(0)) as server, \
                warpcall.connect(server.address, timeout=60) as client:
            y = client.identity(X)
            for _ in range(2):
                client.devices()
                self.assertEqual(y.ceiling_bytes_per_second, 1e9)

    def test_calls_take_connections_in_turns(self):
        peers = []

        def handler(request, context):
            peers.append(context.peer())
            return REPLY

        with FakeServer(handler) as server, \
                warpcall.connect(server.address, connections=3) as client:
            for _ in range(6):
                client.identity(X)
        self.assertEqual(sorted(peers.count(peer) for peer in set(peers)), [2, 2, 2])


if __name__ == "__main__":
    main()
