"""Thousands of mixed calls of the Python client from 16 threads, and from asyncio: right by NumPy,
in flat memory, and with no thread left after; and that a call that failed keeps no memory.

WARPCALL_TEST_REQUESTS says how many of each there are, WARPCALL_TEST_SEED repeats their problems.
"""

import asyncio
import concurrent.futures
import ctypes
import gc
import os
import threading
import tracemalloc
import unittest
import weakref

from support import SEED, RealServer, eventually, main, np
import warpcall
from mixed_problems import arrays_of, dtype_of, mixed, wrong_in

CALLS = int(os.environ.get("WARPCALL_TEST_REQUESTS", 3000))
THREADS = 16
ROUNDS = 3
MIB = 1 << 20
M_ARENA_MAX = -8  # from malloc.h


def resident_bytes():
    """Resident memory, without memory that malloc keeps from this test or earlier ones."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class ManyCallsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # A pool of memory for each thread would fill as the threads happen to take turns. Those that
        # threads have already would stay.
        assert ctypes.CDLL(None).mallopt(M_ARENA_MAX, 1) == 1
        cls.server = cls.enterClassContext(RealServer())

    # Before test_many_tasks, which keeps 3000 problems at once and leaves the memory in pieces.
    def test_calls_of_many_threads(self):
        before = set(threading.enumerate())
        client = warpcall.connect(self.server.address, timeout=60, connections=2)

        def share(index):
            wrong = []
            for number, problem in enumerate(mixed(SEED + index, CALLS // THREADS // ROUNDS)):
                arguments = (problem.kernel, *arrays_of(problem))
                options = {"dtype": dtype_of(problem), **problem.sent}
                call = client.run if number % 2 else lambda *a, **o: client.submit(*a, **o).result()
                wrong.append(wrong_in(problem, call(*arguments, **options)))
            return list(filter(None, wrong))

        sizes = []
        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            for _ in range(ROUNDS):
                for wrong in pool.map(share, range(THREADS)):
                    self.assertEqual(wrong, [], f"WARPCALL_TEST_SEED={SEED}")
                sizes.append(resident_bytes())
        # The first round fills caches and the allocator's pool, for the same problems; the answers
        # of the others are 30 KiB each in the mean.
        print(f"resident after each round: {[size // MIB for size in sizes]} MiB")
        self.assertLess(sizes[-1] - sizes[0], max(32 * MIB, CALLS * 10_000), sizes)
        client.close()
        self.assertTrue(eventually(lambda: set(threading.enumerate()) <= before),
                        threading.enumerate())

    def test_calls_leave_nothing_behind(self):
        x = np.ones((64 << 10) // 4, np.float32)
        blocks = lambda: warpcall.Blocks(x.shape, "float32", [x])
        with warpcall.connect(self.server.address, timeout=60) as client:
            def calls(count):
                for _ in range(count):
                    client.identity(x).timing  # noqa: B018
                    client.submit("identity", x).result()
                    client.identity(blocks())
                    with self.assertRaises(warpcall.InvalidArgument):
                        client.softmax(x, axis=5)
                    client.submit("identity", x).cancel()
                gc.collect()

            calls(20)
            tracemalloc.start()
            self.addCleanup(tracemalloc.stop)
            calls(20)
            before = tracemalloc.get_traced_memory()[0]
            calls(200)
            # One answer is 64 KiB, as much as 200 ordinary objects.
            # The last cancelled calls may still be on their way.
            self.assertTrue(eventually(
                lambda: tracemalloc.get_traced_memory()[0] - before < 20_000),
                tracemalloc.get_traced_memory()[0] - before)

    def test_many_tasks(self):
        async def mix():
            async with warpcall.aio.connect(self.server.address, timeout=60) as client:
                limit = asyncio.Semaphore(32)

                async def one(problem):
                    async with limit:
                        result = await client.run(problem.kernel, *arrays_of(problem),
                                                  dtype=dtype_of(problem), **problem.sent)
                    return wrong_in(problem, result)

                problems = list(mixed(SEED, CALLS))
                wrong = await asyncio.gather(*map(one, problems))
                self.assertEqual(list(filter(None, wrong)), [], f"WARPCALL_TEST_SEED={SEED}")
                x = np.random.default_rng(SEED).standard_normal((5 << 20,), np.float32)
                np.testing.assert_array_equal(await client.identity(x), x)
                self.assertEqual([y.array.tolist() async for y in client.map(
                    "identity", [[1.0], [2.0], [3.0]], window=2)], [[1.0], [2.0], [3.0]])
                with self.assertRaises(warpcall.InvalidArgument):
                    await client.softmax(x, axis=3)
                self.assertEqual([d.name for d in await client.devices()], ["cpu"])

        asyncio.run(mix())

    def test_a_failed_call_keeps_nothing(self):
        """Does not wait for Python's search for cycles: a retrying caller needs the memory."""
        class Refusal:
            """assertRaises would clear the frames that are to let go by themselves."""

            def __enter__(self):
                pass

            def __exit__(self, kind, *_):
                return kind in (warpcall.InvalidArgument, warpcall.NotFound, KeyError)

        def by_run(client, x, **options):
            with Refusal():
                client.softmax(x, **options)

        def by_future(client, x, **options):
            with Refusal():
                client.submit("softmax", x, **options).result(60)

        def by_asyncio(client, x, **options):
            async def call():
                async with warpcall.aio.connect(self.server.address, timeout=60,
                                                connections=connections) as gpu:
                    with Refusal():
                        await gpu.softmax(x, **options)
            asyncio.run(call())

        gc.disable()
        self.addCleanup(gc.enable)
        for connections in (1, 2):  # with 2 in stripes, of 20 MiB and more in streams
            with warpcall.connect(self.server.address, timeout=60, connections=connections) as client:
                for size in (MIB, 4 * MIB, 20 * MIB, 40 * MIB):
                    for call in (by_run, by_future, by_asyncio):
                        for options in ({"axis": 5}, {"implementation": "nope"}):
                            x = np.zeros((size // 4096, 1024), np.float32)
                            alive = weakref.ref(x)
                            call(client, x, **options)
                            del x
                            self.assertTrue(eventually(lambda: alive() is None),
                                            (connections, size, call.__name__, options))

        def broken(x):
            yield x
            raise KeyError("mine")

        with warpcall.connect(self.server.address, timeout=60) as client:
            x = np.zeros((4, 1024), np.float32)
            alive = weakref.ref(x)
            with Refusal():
                client.softmax(warpcall.Blocks((8, 1024), "float32", broken(x)))
            del x
            self.assertTrue(eventually(lambda: alive() is None))


if __name__ == "__main__":
    main()
