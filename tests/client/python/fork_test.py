"""A client in a forked process: it refuses all uses at once. The parent's connection and calls stay as they are,
whatever the child does with its copies of them, and however it ends."""

import subprocess
import sys
import threading
import unittest

import grpc

from support import ENVIRONMENT, SECONDS_MAX, FakeServer, RealServer, answer, eventually, main, np

# Start of all programs. A child prints its findings to the parent's standard output.
BEGIN = """
import asyncio, gc, os, signal, sys, threading, time
import numpy as np
import warpcall
address, x = sys.argv[1], np.ones(64, np.float32)
large = np.ones(5 << 20, np.float32)

def forked(work):
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)
        work()
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""

USES = BEGIN + """
client = warpcall.connect(address, timeout=20)
client.identity(x)
wide = warpcall.connect(address, timeout=20, connections=2)
wide.identity(x)
loop = asyncio.new_event_loop()
aio = warpcall.aio.connect(address, timeout=20)
loop.run_until_complete(aio.identity(x))
loop.run_until_complete(aio.identity(large))
batches = client.map("identity", [x] * 4, window=2)
next(batches)

async def mapped():
    return [y async for y in aio.map("identity", [x, x])]

async def new_aio():
    return await warpcall.aio.connect(address, timeout=20).identity(x)

USES = {
    "run": lambda: client.run("identity", x),
    "method": lambda: client.identity(x),
    "dtype": lambda: client.identity(x, dtype="float16"),
    "large": lambda: client.identity(large),
    "large on a thread": lambda: client.submit("identity", large).result(),
    "striped": lambda: wide.identity(large),
    "striped future": lambda: wide.submit("identity", large),
    "blocks": lambda: client.identity(warpcall.Blocks((64,), "float32", [x])),
    "submit": lambda: client.submit("identity", x),
    "map": lambda: list(client.map("identity", [x, x])),
    "begun map": lambda: list(batches),
    "later kernel": lambda: client.later(x),
    "kernels": lambda: client.kernels(),
    "devices": lambda: client.devices(),
    "server_info": lambda: client.server_info(),
    "benchmark": lambda: client.benchmark("identity", "64"),
    "tune": lambda: client.tune("identity", "64"),
    "profile": lambda: client.profile("identity", "64"),
    "describe": lambda: client.describe("identity", "64"),
    "aio": lambda: asyncio.run(aio.identity(x)),
    "aio large": lambda: asyncio.run(aio.identity(large)),
    "aio map": lambda: asyncio.run(mapped()),
    "aio devices": lambda: asyncio.run(aio.devices()),
    "aio benchmark": lambda: asyncio.run(aio.benchmark("identity", "64")),
    "connect": lambda: warpcall.connect(address, timeout=20),
    "aio connect": lambda: asyncio.run(new_aio()),
}

def child():
    for name, use in USES.items():
        begun = time.monotonic()
        try:
            said = f"gave {use()!r}"
        except warpcall.Cancelled as error:
            told = "was forked from it" in error.message and '"spawn" or "forkserver"' in error.message
            said = "refused" if told else repr(error)
        except BaseException as error:
            said = repr(error)
        if time.monotonic() - begun > 5:
            said = "slow"
        if said != "refused":
            print(name, said, flush=True)

stop, wrong = threading.Event(), []

def busy():
    value = 0
    while not stop.is_set():
        value += 1
        y = np.asarray(client.identity(np.full(4096, value, np.float32)))
        if not (y == value).all():
            wrong.append(value)

thread = threading.Thread(target=busy)
thread.start()
for _ in range(3):
    forked(child)
stop.set()
thread.join()
print("wrong", wrong, float(np.asarray(client.identity(large)).sum()) == large.size)
client.close()
wide.close()
loop.run_until_complete(aio.close())
"""

# While the server holds a call, a child uses client
# and future as told, and ends as programs do.
HELD = BEGIN + """
how, size = sys.argv[2], int(sys.argv[3])
x = np.ones(size, np.float32)
client = warpcall.connect(address, timeout=60)
client.identity(x[:1])
future = client.submit("identity", x)
sys.stdin.readline()
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    if how == "close":
        client.close()
    elif how == "cancel":
        assert not future.cancel()
    elif how == "drop":
        del client, future
        gc.collect()
    elif how == "result":
        try:
            future.result()
        except warpcall.Cancelled:
            client.close()
        else:
            raise AssertionError("it has a result")
    sys.exit()
print("child ended", os.waitpid(pid, 0)[1], flush=True)
print("result", float(np.asarray(future.result()).sum()), flush=True)
client.identity(x[:1])
client.close()
"""

AIO = BEGIN + """
loop = asyncio.new_event_loop()
client = warpcall.aio.connect(address, timeout=60)
loop.run_until_complete(client.identity(x[:1]))
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    if sys.argv[2] == "close":
        asyncio.run(client.close())
    elif sys.argv[2] == "drop":
        del client
        gc.collect()
    sys.exit()
print("child ended", os.waitpid(pid, 0)[1], flush=True)
loop.run_until_complete(client.identity(x[:1]))
loop.run_until_complete(client.close())
"""

IDLE = BEGIN + """
client = warpcall.connect(address, timeout=60)
client.identity(x[:1])
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    if sys.argv[2] == "close":
        client.close()
    elif sys.argv[2] == "drop":
        del client
        gc.collect()
    sys.exit()
print("child ended", os.waitpid(pid, 0)[1], flush=True)
client.identity(x[:1])
client.close()
"""

# Forks beside a thread with calls under way. gRPC logs what its handlers of forks do.
BUSY = BEGIN + """
client = warpcall.connect(address, timeout=60)
stop, calls = threading.Event(), []

def busy():
    while not stop.is_set():
        calls.append(client.identity(x[:1]))

thread = threading.Thread(target=busy)
thread.start()
while len(calls) < 10:
    time.sleep(0.001)
print("forks", file=sys.stderr, flush=True)
for _ in range(20):
    forked(lambda: None)
print("end", file=sys.stderr, flush=True)
stop.set()
thread.join()
client.close()
"""

FIRST = BEGIN + """
unused = warpcall.aio.connect(address)  # opens nothing yet

def child():
    with warpcall.connect(address, timeout=20) as client:
        print(float(np.asarray(client.identity(x)).sum()))

forked(child)
"""


def start(program, *arguments, **environment):
    return subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env={**ENVIRONMENT, **environment})


class ForkTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())

    def end(self, process):
        """Returns the process's output, once it has ended well."""
        try:
            out, errors = process.communicate(timeout=2 * SECONDS_MAX)
        finally:
            process.kill()
        self.assertEqual(process.returncode, 0, out + errors)
        return out

    def test_settings_of_grpcs_are_made_unless_they_are_there(self):
        show = ("import os, warpcall\nwarpcall.connect('127.0.0.1:1').close()\n"
                "print(*(os.environ[f'GRPC_{name}'] for name in"
                " ('ENABLE_FORK_SUPPORT', 'CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS')))")
        self.assertEqual(self.end(start(show)), "0 200\n")
        own = {"GRPC_ENABLE_FORK_SUPPORT": "1", "GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS": "7000"}
        self.assertEqual(self.end(start(show, **own)), "1 7000\n")

    def test_each_use_in_a_child_is_refused_at_once_while_the_parent_goes_on(self):
        self.assertEqual(self.end(start(USES, self.server.address)), "wrong [] True\n")

    def test_the_first_client_may_be_made_in_a_child(self):
        self.assertEqual(self.end(start(FIRST, self.server.address)), "64.0\n")


class ConnectionTest(unittest.TestCase):
    """Against a server that sees which connections there are, and which calls end before they are answered."""

    def setUp(self):
        self.peers, self.begun, self.go_on = [], threading.Event(), threading.Event()
        self.cancelled = []
        self.server = self.enterContext(FakeServer(self.handle, self.handle_stream))

    def hold(self, context):
        self.peers.append(context.peer())
        if len(self.peers) == 2:
            self.begun.set()
            self.go_on.wait(SECONDS_MAX)
            self.cancelled.append(not context.is_active())

    def handle(self, request, context):
        self.hold(context)
        return answer(np.ones(1, np.float32))

    def handle_stream(self, requests, context):
        """Takes it all, and then refuses, which is an answer too."""
        for _ in requests:
            pass
        self.hold(context)
        context.abort(grpc.StatusCode.UNIMPLEMENTED, "held")

    def run_held(self, how, elements):
        process = start(HELD, self.server.address, how, elements)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertTrue(self.begun.wait(SECONDS_MAX))
        process.stdin.write("\n")
        process.stdin.flush()
        line = process.stdout.readline()
        self.assertEqual(line, "child ended 0\n", line or process.stderr.read)
        self.go_on.set()
        return process

    def check_untouched(self, calls):
        self.assertTrue(eventually(lambda: len(self.peers) == calls))
        self.assertEqual(self.cancelled, [False] * len(self.cancelled))
        self.assertEqual(len(set(self.peers)), 1)

    def check_held(self, how):
        process = self.run_held(how, 1)
        out, errors = process.communicate(timeout=SECONDS_MAX)
        self.assertEqual((process.returncode, out), (0, "result 1.0\n"), errors)
        self.check_untouched(3)

    def test_a_child_that_closes_the_client(self):
        self.check_held("close")

    def test_a_child_that_cancels_a_future(self):
        self.check_held("cancel")

    def test_a_child_that_drops_all_it_has(self):
        self.check_held("drop")

    def test_a_child_that_waits_for_a_future_and_closes(self):
        self.check_held("result")

    def test_a_child_that_only_ends(self):
        self.check_held("end")

    def test_a_child_while_a_large_call_is_under_way(self):
        for how in ("drop", "close"):
            with self.subTest(how=how):
                self.setUp()
                process = self.run_held(how, 20 << 20)
                _, errors = process.communicate(timeout=SECONDS_MAX)
                self.assertIn("UNIMPLEMENTED: held", errors)
                self.check_untouched(2)

    def check_idle(self, program):
        for how in ("close", "drop", "end"):
            with self.subTest(how=how):
                self.peers, self.begun = [], threading.Event()
                self.go_on.set()
                process = start(program, self.server.address, how)
                self.addCleanup(process.kill)
                out, errors = process.communicate(timeout=SECONDS_MAX)
                self.assertEqual((process.returncode, out), (0, "child ended 0\n"), errors)
                self.check_untouched(2)

    def test_handlers_of_grpcs_do_not_run(self):
        """They can hang the parent."""
        self.go_on.set()
        process = start(BUSY, self.server.address, GRPC_VERBOSITY="info")
        self.addCleanup(process.kill)
        _, errors = process.communicate(timeout=SECONDS_MAX)
        self.assertEqual(process.returncode, 0, errors)
        self.assertIn("forks\nend\n", errors)
        self.assertEqual(len(set(self.peers)), 1)

    def test_a_child_with_an_idle_client(self):
        self.check_idle(IDLE)

    def test_a_child_with_the_client_for_asyncio(self):
        self.check_idle(AIO)


if __name__ == "__main__":
    main()
