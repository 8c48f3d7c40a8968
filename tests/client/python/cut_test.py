"""Calls that are cut between client and server in the middle of their answer, as HAProxy does with `shutdown sessions`:
the client retries them. Against a server of HTTP/2 frames that cuts as often as a test says."""

import asyncio
import contextlib
import itertools
import socket
import struct
import threading
import unittest

from support import FAST, FakeServer, Messages, answer, grpc, main, np
import warpcall

X = np.arange(6, dtype=np.float32).reshape(2, 3)
PREFACE_BYTES = 24
DATA, HEADERS, RST_STREAM, SETTINGS, PING = 0, 1, 3, 4, 6
ACK, END_STREAM, END_HEADERS = 1, 1, 4
NO_ERROR, INTERNAL_ERROR, CANCEL = 0, 2, 8
# HPACK: `:status: 200` from the static table; the rest without a table.
RESPONSE = b"\x88" + b"\x00\x0ccontent-type" + b"\x10application/grpc"
TRAILERS = b"\x00\x0bgrpc-status" + b"\x010"
QUICK = {"backoff_initial": 0.001}
MESSAGES = Messages()


def frame(kind, payload=b"", flags=0, stream=0):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


class CuttingServer:
    """Breaks off its first `cuts` calls behind their headers: with an error code of HTTP/2, or where that is
    None without a status. The others have `reply`."""

    def __init__(self, cuts, error, reply):
        self.cuts, self.error, self.reply, self.calls = cuts, error, reply, 0
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:{}".format(self.listener.getsockname()[1])
        self.thread = threading.Thread(target=self.accept)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join()

    def accept(self):
        serving = []
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:  # it is over
                break
            thread = threading.Thread(target=self.serve, args=[connection])
            thread.start()
            serving.append((thread, connection))
        for thread, connection in serving:
            with contextlib.suppress(OSError):  # the client was first
                connection.shutdown(socket.SHUT_RDWR)
            thread.join()

    def serve(self, connection):
        # The client leaves once it has its answer.
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as received:
            connection.sendall(frame(SETTINGS))
            received.read(PREFACE_BYTES)
            while len(head := received.read(9)) == 9:
                kind, flags, stream = struct.unpack(">BBI", head[3:])
                payload = received.read(int.from_bytes(head[:3], "big"))
                if kind in (SETTINGS, PING) and not flags & ACK:
                    connection.sendall(frame(kind, payload if kind == PING else b"", ACK))
                elif kind in (DATA, HEADERS) and flags & END_STREAM:
                    connection.sendall(self.answer(stream))

    def answer(self, stream):
        with self.lock:
            self.calls += 1
            is_cut = self.calls <= self.cuts
        head = frame(HEADERS, RESPONSE, END_HEADERS, stream)
        if not is_cut:
            return (head + frame(DATA, b"\x00" + struct.pack(">I", len(self.reply)) + self.reply, 0, stream)
                    + frame(HEADERS, TRAILERS, END_HEADERS | END_STREAM, stream))
        if self.error is None:
            return head + frame(DATA, b"", END_STREAM, stream)
        return head + frame(RST_STREAM, struct.pack(">I", self.error), 0, stream)


def by_run(address, retry):
    with warpcall.connect(address, timeout=60, retry=retry) as client:
        return np.asarray(client.identity(X))


def by_future(address, retry):
    with warpcall.connect(address, timeout=60, retry=retry) as client:
        return np.asarray(client.submit("identity", X).result())


def by_asyncio(address, retry):
    async def call():
        async with warpcall.aio.connect(address, timeout=60, retry=retry) as client:
            return np.asarray(await client.identity(X))
    return asyncio.run(call())


WAYS = (by_run, by_future, by_asyncio)


def cases(*errors):
    return itertools.product(errors, WAYS)


class CutTest(unittest.TestCase):
    def test_what_is_broken_off_is_tried_again(self):
        for error, way in cases(NO_ERROR, INTERNAL_ERROR, CANCEL, None):
            with self.subTest(error=error, way=way.__name__), CuttingServer(2, error, answer(X)) as server:
                np.testing.assert_array_equal(way(server.address, warpcall.Retry(attempts_max=3, **QUICK)), X)
                self.assertEqual(server.calls, 3)

    def test_what_is_broken_off_each_time_is_unavailable(self):
        for error, way in cases(CANCEL, None):
            with self.subTest(error=error, way=way.__name__), CuttingServer(9, error, b"") as server:
                with self.assertRaisesRegex(warpcall.Unavailable, "broken off on its way"):
                    way(server.address, warpcall.Retry(attempts_max=2, **QUICK))
                self.assertEqual(server.calls, 2)

    def test_other_errors_of_http_2_stand(self):
        """FLOW_CONTROL_ERROR: one of the two is wrong, and will be again."""
        for error, way in cases(3):
            with self.subTest(error=error, way=way.__name__), CuttingServer(9, error, b"") as server:
                with self.assertRaises(warpcall.Internal):
                    way(server.address, warpcall.Retry(attempts_max=3, **QUICK))
                self.assertEqual(server.calls, 1)

    def test_blocks_that_were_taken_are_not_asked_for_again(self):
        with CuttingServer(9, CANCEL, b"") as server:
            with warpcall.connect(server.address, timeout=60, retry=warpcall.Retry(**QUICK)) as client:
                with self.assertRaises(warpcall.Unavailable):
                    client.identity(warpcall.Blocks((1,), "float32", iter([X[0, :1]])))
            self.assertEqual(server.calls, 1)


@unittest.skipIf(FAST, "the module asks such a server for Execute, whose answer comes whole")
class OverlapTest(unittest.TestCase):
    """An `out` in an input's memory, and a stream that breaks when part of the answer has come."""

    def stream(self, requests, context):
        self.attempts += 1
        data = bytearray(self.x.nbytes)
        for raw in requests:
            chunk = MESSAGES.ExecuteStreamRequest.FromString(raw).chunk
            data[chunk.offset:chunk.offset + len(chunk.data)] = chunk.data
        message = MESSAGES.ExecuteStreamResponse()
        message.header.outputs.add(data_type=1, shape=self.x.shape)
        yield message.SerializeToString()
        first = self.attempts == 1
        for at in range(0, len(data), 1 << 20):
            part = bytes(1 << 20) if first else bytes(data[at:at + (1 << 20)])
            chunk = MESSAGES.Chunk(offset=at, data=part)
            yield MESSAGES.ExecuteStreamResponse(chunk=chunk).SerializeToString()
            if first:
                context.abort(grpc.StatusCode.UNAVAILABLE, "broken off")
        done = MESSAGES.ExecuteResponse(implementation="fake", device="cpu")
        yield MESSAGES.ExecuteStreamResponse(done=done).SerializeToString()

    def test_the_input_is_sent_again_as_it_was(self):
        for where in (0, 1 << 21):  # in place, and over half of it
            memory = np.arange((1 << 22) + where, dtype=np.float32)
            self.x, self.attempts = memory[:1 << 22], 0
            expected, out = self.x.copy(), memory[where:]
            with FakeServer(None, self.stream) as server, \
                    warpcall.connect(server.address, retry=warpcall.Retry(**QUICK)) as client:
                client.identity(self.x, out=out)
            self.assertEqual(self.attempts, 2)
            np.testing.assert_array_equal(out, expected)


if __name__ == "__main__":
    main()
