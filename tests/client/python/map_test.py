"""map with a generator that writes each batch to the memory of the one before: every result is of its own
batch, while the bytes of a call are held up on their way to the server until the next batch was written."""

import asyncio
import socket
import threading
import unittest
from unittest import mock

from support import SECONDS_MAX, RealServer, main, np
import warpcall
from warpcall import _request

SMALL = 1000
STREAMED = 5 << 20  # elements: 20 MiB
BATCHES = 4


class Gate:
    """Passes bytes on to a server; those of a client that are behind the first `passed` ones once it is open."""

    def __init__(self, address, passed):
        host, _, port = address.rpartition(":")
        self._target, self._passed = (host, int(port)), passed
        self.opened = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets, self._threads = [self._listener], []
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._start(self._accept)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.opened.set()
        for each in self._sockets:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        for thread in self._threads:
            thread.join(SECONDS_MAX)
        for each in self._sockets:
            each.close()

    def _start(self, work, *arguments):
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        try:
            while True:
                client, server = self._listener.accept()[0], socket.create_connection(self._target)
                self._sockets += [client, server]
                self._start(self._pass, client, server, self._passed)
                self._start(self._pass, server, client, None)
        except OSError:
            pass

    def _pass(self, source, target, left):
        try:
            while data := source.recv(1 << 16):
                if left is not None:
                    if left < len(data) and not self.opened.wait(2 * SECONDS_MAX):
                        return
                    left -= len(data)
                target.sendall(data)
        except OSError:
            pass


class MapTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())

    def batches(self, gate, elements):
        buffer = np.empty(elements, np.float32)
        for value in range(BATCHES):
            buffer[:] = value
            if value == 1:  # all of batch 0 is still here
                gate.opened.set()
            yield buffer

    def check(self, results):
        self.assertEqual([(y.array.min(), y.array.max()) for y in results], [(i, i) for i in range(BATCHES)])

    def test_a_generator_may_reuse_its_memory(self):
        for elements, connections, passed in ((SMALL, 1, 0), (STREAMED, 1, 1 << 16), (STREAMED, 2, 1 << 16)):
            with self.subTest(elements=elements, connections=connections), \
                    Gate(self.server.address, passed) as gate, \
                    warpcall.connect(gate.address, timeout=SECONDS_MAX, connections=connections) as client:
                self.check(list(client.map("identity", self.batches(gate, elements), window=BATCHES)))

    def test_a_generator_may_reuse_its_memory_in_asyncio(self):
        async def results(gate, elements):
            async with warpcall.aio.connect(gate.address, timeout=SECONDS_MAX) as client:
                batches = self.batches(gate, elements)
                return [y async for y in client.map("identity", batches, window=BATCHES)]

        async def of_async_batches(gate, elements):
            async def batches():
                for batch in self.batches(gate, elements):
                    yield batch
            async with warpcall.aio.connect(gate.address, timeout=SECONDS_MAX) as client:
                return [y async for y in client.map("identity", batches(), window=BATCHES)]

        for elements, passed in ((SMALL, 0), (STREAMED, 1 << 16)):
            for way in (results, of_async_batches):
                with self.subTest(elements=elements), Gate(self.server.address, passed) as gate:
                    self.check(asyncio.run(way(gate, elements)))

    def test_submit_takes_inputs_as_they_are_at_that_moment(self):
        for elements, connections, passed in ((SMALL, 1, 0), (STREAMED, 1, 1 << 16), (STREAMED, 2, 1 << 16)):
            with self.subTest(elements=elements, connections=connections), \
                    Gate(self.server.address, passed) as gate, \
                    warpcall.connect(gate.address, timeout=SECONDS_MAX, connections=connections) as client:
                array = np.zeros(elements, np.float32)
                future = client.submit("identity", array)
                array[:] = 1
                gate.opened.set()
                self.assertEqual(future.result().array.max(), 0)

    def test_submit_of_blocks_copies_nothing(self):
        array = np.zeros(STREAMED, np.float32)
        with Gate(self.server.address, 1 << 16) as gate, \
                warpcall.connect(gate.address, timeout=SECONDS_MAX) as client:
            future = client.submit("identity", warpcall.Blocks(array.shape, array.dtype, [array]))
            array[-1] = 1
            gate.opened.set()
            self.assertEqual(future.result().array[-1], 1)

    def test_what_nobody_writes_to_is_not_copied(self):
        arrays = [np.full(STREAMED, i, np.float32) for i in range(BATCHES)]
        own = mock.Mock(wraps=_request.Request.own_inputs)

        def owned(request):
            return own(request)

        with mock.patch.object(_request.Request, "own_inputs", owned), \
                warpcall.connect(self.server.address, timeout=SECONDS_MAX) as client:
            self.check(list(client.map("identity", arrays, window=BATCHES)))
            self.check(list(client.map("identity", iter(arrays), window=1)))
            self.assertEqual(own.call_count, 0)
            self.check(list(client.map("identity", iter(arrays), window=BATCHES)))
            self.assertEqual(own.call_count, BATCHES)

    def test_what_was_converted_is_not_copied_again(self):
        request = _request.Request(_request.Call("identity"), [np.ones((3, 3)).T], _request.Options(dtype="f4"),
                                   lambda device: None)
        before = request.inputs[0].data
        request.own_inputs()
        self.assertIs(request.inputs[0].data, before)


if __name__ == "__main__":
    main()
