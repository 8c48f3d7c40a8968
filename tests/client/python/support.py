"""Shared parts of the Python client's tests: the package under test, protobuf's own messages for
comparison, the real server, and a grpcio server that does what a test tells it.

    X_test.py BUILD_FOLDER [unittest's arguments]

WARPCALL_TEST_FAST=1: calls go through the module warpcall_fast of BUILD_FOLDER; otherwise none is used. Exit status 77:
skipped, Debian's packages for Python are missing, or the module is.
"""

import concurrent.futures
import dataclasses
import os
import random
import sys
import threading
import time
import unittest

SKIPPED = 77
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
SEED = int(os.environ.get("WARPCALL_TEST_SEED", random.SystemRandom().randrange(1 << 30)))
BUILD = sys.argv[1] if len(sys.argv) > 1 else ""

FAST = os.environ.get("WARPCALL_TEST_FAST") == "1"
_PACKAGES = [os.path.join(ROOT, "client", "python")]
if FAST:
    _PACKAGES.append(os.path.join(os.path.abspath(BUILD), "fast", "module"))
    os.environ.pop("WARPCALL_PURE", None)
    if not os.path.isdir(_PACKAGES[-1]):
        print(f"skipped: there is no {_PACKAGES[-1]}; fast/reason beside it may say why")
        sys.exit(SKIPPED)
else:
    os.environ["WARPCALL_PURE"] = "1"
# Environment for programs that a test starts.
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(_PACKAGES), "PYTHONDONTWRITEBYTECODE": "1"}

sys.dont_write_bytecode = True
sys.path[:0] = [*_PACKAGES, os.path.join(ROOT, "tests", "differential")]
try:
    import grpc
    import numpy as np  # noqa: F401  for the tests

    import differential
    import warpcall
    from differential import eventually  # noqa: F401  for the tests
except ImportError as missing:
    print(f"skipped: {missing}; deploy/install_packages.sh test installs what is missing")
    sys.exit(SKIPPED)

# Longer than anything takes on a slow and busy machine.
SECONDS_MAX = 60


def enter_context(test, manager):
    value = manager.__enter__()
    test.addCleanup(manager.__exit__, None, None, None)
    return value


def enter_class_context(cls, manager):
    value = manager.__enter__()
    cls.addClassCleanup(manager.__exit__, None, None, None)
    return value


if sys.version_info < (3, 11):  # the package's oldest is 3.10
    unittest.TestCase.enterContext = enter_context
    unittest.TestCase.enterClassContext = classmethod(enter_class_context)


class Messages:
    """protobuf's classes for the service's messages, as attributes."""

    def __init__(self):
        self._pool = differential.load_pool(BUILD)

    def __getattr__(self, name):
        descriptor = self._pool.FindMessageTypeByName("warpcall.v1." + name)
        message = differential.class_of(descriptor, self._pool)
        setattr(self, name, message)
        return message


def before_the_end(rows):
    """Rows of a benchmark without the fields that are known only at the end."""
    return [dataclasses.replace(row, verdict="", fraction_of_ceiling=0.0) for row in rows]


def in_thread(call):
    """A thread that makes `call`, and a future of the client's error that ends it."""
    outcome = concurrent.futures.Future()

    def run():
        try:
            call()
        except warpcall.Error as error:
            outcome.set_result(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, outcome


class RealServer(differential.Server):
    """warpcalld with the CPU device; it starts without its self-test."""

    def __init__(self, *flags):
        super().__init__(BUILD, "--devices=cpu", "--self_test=off", *flags)


class FakeServer:
    """A server whose answers `handler(request bytes, context)` makes: bytes, or the exception that it raises or aborts
    with. Streams: `stream_handler(request iterator, context)`; without one it has no stream methods. `stops`, an event:
    a health service reports SERVING until it is set. `put_handler(request iterator, context)` answers Put with bytes."""

    def __init__(self, handler, stream_handler=None, address="127.0.0.1:0", credentials=None, stops=None,
                 put_handler=None):
        self.watches = 0

        def watch(_, context):
            self.watches += 1
            said = None
            while context.is_active():
                status = 2 if stops.is_set() else 1  # HealthCheckResponse's NOT_SERVING and SERVING
                if status != said:
                    yield bytes([8, status])
                    said = status
                time.sleep(0.01)

        class Handlers(grpc.GenericRpcHandler):
            def service(self, details):
                if stops is not None and details.method == "/grpc.health.v1.Health/Watch":
                    return grpc.unary_stream_rpc_method_handler(watch)
                if details.method.endswith("/Put"):
                    return put_handler and grpc.stream_unary_rpc_method_handler(put_handler)
                if details.method.endswith(("Stream", "/Push")):
                    return stream_handler and grpc.stream_stream_rpc_method_handler(stream_handler)
                return grpc.unary_unary_rpc_method_handler(handler)

        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.server = grpc.server(self.pool, options=[("grpc.max_receive_message_length", -1)])
        self.server.add_generic_rpc_handlers((Handlers(),))
        port = (self.server.add_insecure_port(address) if credentials is None
                else self.server.add_secure_port(address, credentials))
        if address.startswith("unix:"):
            self.address = address
        else:
            self.address = f"localhost:{port}" if credentials else f"127.0.0.1:{port}"
        self.server.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.server.stop(0).wait()
        self.pool.shutdown()


def answer(array, **fields):
    """The bytes of an ExecuteResponse with a float32 array."""
    response = Messages().ExecuteResponse(implementation="fake", device="cpu", **fields)
    response.outputs.add(data_type=1, shape=array.shape, data=array.astype("<f4").tobytes())
    return response.SerializeToString()


def main():
    print(f"WARPCALL_TEST_SEED={SEED}", flush=True)
    assert warpcall.FAST == FAST
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[2:]], verbosity=2)
