"""Progress of the Python client's longer work: reported to a callback, or shown by tqdm where that
is installed. With a tqdm of the tests' own."""

import asyncio
import sys
import types
import unittest
from unittest import mock

from support import FakeServer, main
import warpcall
from ways import REPLY, X


class Bar:
    """tqdm's, as far as it is used."""

    made = []

    def __init__(self, total=None, desc=None):
        self.total, self.desc, self.done, self.closed, self.notes = total, desc, 0, False, []
        Bar.made.append(self)

    def update(self):
        self.done += 1

    def set_postfix_str(self, text):
        self.notes.append((self.done, text))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.closed = True


def client_map(address, batches, **options):
    with warpcall.connect(address, timeout=60) as client:
        return list(client.map("gelu", batches, window=2, **options))


def aio_map(address, batches, **options):
    async def take():
        async with warpcall.aio.connect(address, timeout=60) as client:
            return [y async for y in client.map("gelu", batches, window=2, **options)]
    return asyncio.run(take())


def client_benchmark(address, shapes, **options):
    with warpcall.connect(address, timeout=60) as client:
        return client.benchmark("gelu", shapes, **options)


def aio_benchmark(address, shapes, **options):
    async def take():
        async with warpcall.aio.connect(address, timeout=60) as client:
            return await client.benchmark("gelu", shapes, **options)
    return asyncio.run(take())


class ProgressTest(unittest.TestCase):
    def setUp(self):
        Bar.made.clear()
        self.tqdm = {"tqdm": types.ModuleType("tqdm"), "tqdm.auto": types.SimpleNamespace(tqdm=Bar)}
        self.maps = self.enterContext(FakeServer(lambda request, context: REPLY))
        self.benchmarks = self.enterContext(FakeServer(lambda request, context: b""))

    def calls(self):
        for take in (client_map, aio_map):
            yield 5, lambda take=take, **options: take(self.maps.address, [X] * 5, **options)
        for take in (client_benchmark, aio_benchmark):
            yield 3, lambda take=take, **options: take(
                self.benchmarks.address, ["2x3", "4", "5"], **options)

    def test_a_callback(self):
        for count, call in self.calls():
            told = []
            call(progress=lambda *at: told.append(at))
            self.assertEqual(told, [(number + 1, count) for number in range(count)])
        told = []
        client_map(self.maps.address, iter([X, X]), progress=lambda *at: told.append(at))
        self.assertEqual(told, [(1, None), (2, None)])

    def test_a_bar(self):
        for count, call in self.calls():
            with mock.patch.dict(sys.modules, self.tqdm):
                call(progress=True)
            bar = Bar.made.pop()
            self.assertEqual((bar.total, bar.done, bar.desc, bar.closed),
                             (count, count, "gelu", True))

    def test_without_tqdm(self):
        for _, call in self.calls():
            with mock.patch.dict(sys.modules, {"tqdm": None, "tqdm.auto": None}):
                call(progress=True)
            with mock.patch.dict(sys.modules, self.tqdm):
                call()
                call(progress=False)
        self.assertEqual(Bar.made, [])

    def test_who_breaks_off_closes_the_bar(self):
        with mock.patch.dict(sys.modules, self.tqdm), \
                warpcall.connect(self.maps.address, timeout=60) as client:
            results = client.map("gelu", [X] * 5, progress=True)
            next(results)
            next(results)
            results.close()
        (bar,) = Bar.made
        self.assertEqual((bar.done, bar.closed), (1, True))


if __name__ == "__main__":
    main()
