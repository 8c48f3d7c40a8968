"""Calls to several servers by one address, none of which reports SERVING: so it is while all servers of a name are told
to stop, and serve on for a while."""

import threading
import unittest

from support import FAST, FakeServer, answer, eventually, grpc, in_thread, main, np
from ways import WAYS, X, Script
import warpcall

ONCE = warpcall.Retry(attempts_max=1)  # a call that is lost shows
# So much that it goes by ExecuteStream.
LARGE = np.zeros((4096, 4096) if FAST else (1024, 4096), np.float32)


def with_peers(handler, peers):
    def handle(request, context):
        peers.add(context.peer())
        return handler(request, context)
    return handle


class NoneServesTest(unittest.TestCase):
    def server(self, handler, stream_handler=None):
        self.stops = threading.Event()
        self.stops.set()
        return self.enterContext(FakeServer(handler, stream_handler, stops=self.stops))

    def client(self, connect, server, timeout=60, **options):
        return self.enterContext(connect(f"ipv4:{server.address}", retry=ONCE, timeout=timeout, **options))

    def test_no_call_is_lost(self):
        for connect, way in WAYS:
            with self.subTest(connect=connect, way=way):
                script = Script()
                client = self.client(connect, self.server(script))
                for calls in (1, 2, 3):
                    np.testing.assert_array_equal(way(client), X)
                    self.assertEqual(script.calls, calls)

    def test_what_a_server_refuses_is_not_sent_again(self):
        for connect, way in WAYS:
            with self.subTest(connect=connect, way=way):
                script = Script(("UNAVAILABLE", None), ("UNAVAILABLE", None))
                server = self.server(script)
                client = self.client(connect, server)
                for calls in (1, 2):
                    with self.assertRaises(warpcall.Unavailable):
                        way(client)
                    self.assertEqual(script.calls, calls)
                    self.stops.clear()

    def test_no_large_call_is_lost(self):
        begun = []

        def refuse(context):
            begun.append(context.peer())
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, "it came")

        def handle(request, context):
            if request:
                refuse(context)
            return b""  # ListKernels has none, so that the call goes in no stripes

        def stream(_, context):
            refuse(context)
            yield b""

        for connections in (1, 2):
            with self.subTest(connections=connections):
                client = self.client(warpcall.connect, self.server(handle, stream), connections=connections)
                with self.assertRaisesRegex(warpcall.Error, "it came"):
                    client.identity(LARGE)
                self.assertEqual(len(begun), connections)

    def test_a_large_call_that_finds_no_server_says_so(self):
        """gRPC 1.51 crashes where the channels of a stream's attempt are gone soon after it."""
        for _ in range(3):
            with warpcall.connect("dns:///localhost:1", timeout=60) as client, \
                    self.assertRaises(warpcall.Unavailable):
                client.identity(LARGE)

    @unittest.skipIf(FAST, "channel_test.cc: channels of the C++ client may share the call that watches")
    def test_a_client_has_one_connection(self):
        for connect, way in WAYS[:2]:
            with self.subTest(way=way):
                peers = set()
                server = self.server(with_peers(Script(), peers))
                self.stops.clear()
                client = self.client(connect, server)
                way(client)
                self.assertEqual(server.watches, 1)
                self.stops.set()
                # The channel that replaces the first one watches, too.
                self.assertTrue(eventually(lambda: way(client) is not None and server.watches > 1))
                way(client)
                self.assertEqual(len(peers), 1)

    def test_stripes_have_a_connection_each(self):
        peers = set()
        client = self.client(warpcall.connect, self.server(with_peers(Script(), peers)), connections=2)
        for _ in range(6):
            client.identity(X)
        self.assertEqual(len(peers), 2)

    def test_close_ends_what_is_under_way(self):
        came, ends = threading.Event(), threading.Event()
        self.addCleanup(ends.set)

        def handle(_, context):
            context.add_callback(ends.set)
            came.set()
            ends.wait()
            return answer(X)

        client = self.client(warpcall.connect, self.server(handle), timeout=600)
        thread, outcome = in_thread(lambda: client.identity(X))
        self.assertTrue(came.wait(60))
        client.close()
        self.assertIsInstance(outcome.result(60), warpcall.Cancelled)
        self.assertTrue(ends.wait(60))
        thread.join()


if __name__ == "__main__":
    main()
