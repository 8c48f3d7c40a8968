"""Kernels as methods of the Python client: those that the server has, by its own list, and no others; and
fused with its expression first, as on the command line."""

import asyncio
import copy
import socket
import unittest

from support import FakeServer, Messages, RealServer, grpc, main, np
import warpcall
from ways import REPLY, X

ONCE = warpcall.Retry(attempts_max=1)


class Lists:
    """A server with a kernel that the package does not know; it lists its kernels or refuses."""

    def __init__(self, code=None):
        self.code, self.asked = code, 0
        response = Messages().ListKernelsResponse()
        response.kernels.add(name="identity")
        response.kernels.add(name="newest")
        self.list = response.SerializeToString()

    def __call__(self, request, context):
        if request[:1] == b"\n":  # an Execute
            return REPLY
        self.asked += 1
        if self.code is not None:
            context.abort(getattr(grpc.StatusCode, self.code), "no list")
        return self.list


class NamesTest(unittest.TestCase):
    def test_only_kernels_of_the_server_are_attributes(self):
        lists = Lists()
        with FakeServer(lists) as server, warpcall.connect(server.address, timeout=60) as client:
            self.assertNotIn("newest", dir(client))
            self.assertTrue(hasattr(client, "gelu"))
            self.assertEqual(lists.asked, 0)  # it is known
            self.assertFalse(hasattr(client, "shape"))
            self.assertFalse(hasattr(client, "glue"))
            self.assertTrue(hasattr(client, "newest"))
            np.testing.assert_array_equal(client.newest(X), X)
            self.assertEqual(lists.asked, 1)
            self.assertIn("newest", dir(client))
            with self.assertRaises(AttributeError) as raised:
                client.glue
            self.assertIsInstance(raised.exception, warpcall.NotFound)
            self.assertIn("kernel 'glue' is unknown", str(raised.exception))
            self.assertIn("the server has: identity, newest", str(raised.exception))

    def test_names_of_pythons_own_ask_nobody(self):
        lists = Lists()
        with FakeServer(lists) as server, warpcall.connect(server.address, timeout=60) as client:
            for name in ("_repr_html_", "__array__", "__deepcopy__", "_ipython_display_"):
                self.assertFalse(hasattr(client, name), name)
            self.assertIs(copy.copy(client)._calls, client._calls)
            self.assertEqual(lists.asked, 0)

    def test_kernels_makes_the_list_anew(self):
        lists = Lists()
        with FakeServer(lists) as server, warpcall.connect(server.address, timeout=60) as client:
            self.assertFalse(hasattr(client, "later"))
            response = Messages().ListKernelsResponse.FromString(lists.list)
            response.kernels.add(name="later")
            lists.list = response.SerializeToString()
            self.assertFalse(hasattr(client, "later"))
            self.assertEqual(client.kernels()[-1].name, "later")
            self.assertTrue(hasattr(client, "later"))

    def test_where_nobody_says_the_call_says_it(self):
        with FakeServer(Lists("PERMISSION_DENIED")) as server, \
                warpcall.connect(server.address, timeout=60) as client:
            np.testing.assert_array_equal(client.newest(X), X)
        with socket.socket() as nobody:
            nobody.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{nobody.getsockname()[1]}"
            with warpcall.connect(address, timeout=60, retry=ONCE) as client, \
                    self.assertRaises(warpcall.Unavailable):
                client.newest(X)

    def test_in_asyncio_once_the_list_is_known(self):
        async def names(address):
            async with warpcall.aio.connect(address, timeout=60) as client:
                before = hasattr(client, "glue")
                np.testing.assert_array_equal(await client.newest(X), X)
                await client.kernels()
                return before, hasattr(client, "glue"), hasattr(client, "newest"), "newest" in dir(client)

        with FakeServer(Lists()) as server:
            self.assertEqual(asyncio.run(names(server.address)), (True, False, True, True))


class FusedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.gpu = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=60))

    def test_the_expression_may_come_first(self):
        x, y = np.arange(3, dtype=np.float32), np.ones(3, np.float32)
        for result in (self.gpu.fused("x0 - 2 * x1", x, y), self.gpu.fused(x, y, expression="x0 - 2 * x1"),
                       asyncio.run(self.by_aio(x, y))):
            np.testing.assert_array_equal(result, x - 2 * y)

    async def by_aio(self, x, y):
        async with warpcall.aio.connect(self.server.address, timeout=60) as client:
            return await client.fused("x0 - 2 * x1", x, y)

    def test_twice_is_once_too_often(self):
        with self.assertRaisesRegex(warpcall.InvalidArgument, "expression is given twice: 'x0', '-x0'"):
            self.gpu.fused("x0", X, expression="-x0")

    def test_text_is_no_input_of_other_kernels(self):
        with self.assertRaises(warpcall.InvalidArgument):
            self.gpu.gelu("x0", X)


if __name__ == "__main__":
    main()
