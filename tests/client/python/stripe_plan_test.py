"""Which stripes the Python client plans: by the C++ client's rule."""

import math
import random
import unittest

from support import SEED, main, np
from warpcall import _stripes
from warpcall._arrays import to_operand
from warpcall._execute import Call
from warpcall._proto import AttributeInfo, KernelInfo
from warpcall._request import Options, Request

MIB = 1 << 20


class PlanTest(unittest.TestCase):
    def plan(self, independence, arrays, stripes_max, roles=(), **attributes):
        kernel = KernelInfo("kernel", attributes=(AttributeInfo("axis", default_value=-1),),
                            independence=independence, input_roles=roles)
        operands = [to_operand(array) for array in arrays]
        request = Request(Call("kernel", attributes=attributes), operands, Options(), None)
        return _stripes.plan_stripes(request, kernel, stripes_max)

    def test_every_part_once_and_in_order(self):
        rng = random.Random(SEED)
        for _ in range(300):
            shape = tuple(rng.choice((1, 2, 3, 5, 8, 127, 256, 1000))
                          for _ in range(rng.randrange(1, 5)))
            if math.prod(shape) > 8 * MIB:
                continue
            array = np.broadcast_to(np.zeros((), rng.choice(("f4", "f2"))), shape)
            operand = to_operand(np.empty((1,), array.dtype))._replace(
                shape=shape, data=np.empty(shape, array.dtype))
            axis, connections = rng.randrange(-len(shape), len(shape)), rng.randrange(1, 9)
            independence = rng.choice(("elements", "before_axis"))
            stripes = self.plan(independence, [operand.data], connections, axis=axis)
            parts = math.prod(shape[:axis % len(shape)] if independence == "before_axis" else shape)
            expected = min(connections, operand.data.nbytes // MIB, parts)
            self.assertEqual(len(stripes), expected if expected > 1 else 0)
            sizes = [math.prod(stripe.shape) for stripe in stripes]
            self.assertEqual([stripe.begin for stripe in stripes],
                             [sum(sizes[:i]) for i in range(len(sizes))])
            if stripes:
                self.assertEqual(sum(sizes), operand.data.size)
                self.assertGreater(min(sizes), 0)
                part = math.prod(shape) // parts
                aligned = 256 // math.gcd(256, part * array.itemsize)
                self.assertTrue(parts // aligned < len(stripes) or all(
                    stripe.begin * array.itemsize % 256 == 0 for stripe in stripes))

    def test_shapes(self):
        x = np.zeros((6, 512, 512), np.float32)
        shapes = lambda *given, **options: [s.shape for s in self.plan(*given, **options)]
        self.assertEqual(shapes("before_axis", [x], 2), [(1536, 512)] * 2)
        self.assertEqual(shapes("before_axis", [x], 2, axis=1), [(3, 512, 512)] * 2)
        self.assertEqual(shapes("before_axis", [x], 3, axis=np.int32(-2)), [(2, 512, 512)] * 3)
        self.assertEqual(shapes("elements", [x, x], 2), [(3 * 512 * 512,)] * 2)

    def test_rows_and_what_they_share(self):
        x, z = np.zeros((2, 1024, 512), np.float32), np.zeros((2, 1024, 7), np.float16)
        w = np.zeros((512,), np.float32)
        shapes = lambda *given: [(s.begin_part, s.begin, s.shape)
                                 for s in self.plan("rows", *given)]
        halves = [(0, 0, (1024, 512)), (1024, 1024 * 512, (1024, 512))]
        self.assertEqual(shapes([x], 2), halves)
        self.assertEqual(shapes([x, w], 2, ("split", "shared")), halves)
        self.assertEqual(shapes([x, w, z], 2, ("split", "shared")), halves)
        self.assertEqual(shapes([x, w], 2), [])
        self.assertEqual(shapes([x, z[0]], 2), [])
        self.assertEqual(shapes([x, w], 2, ("shared", "split")), [])
        self.assertEqual(shapes([x, w], 2, ("split", "7")), [])  # from a later version
        # A stripe has more of its own than it shares: of 4 MiB.
        self.assertEqual(len(shapes([x, np.zeros((MIB // 4,), np.float32)], 8,
                                    ("split", "shared"))), 4)
        self.assertEqual(len(shapes([x, np.zeros((MIB // 2,), np.float32)], 8,
                                    ("split", "shared"))), 2)
        self.assertEqual(shapes([x, np.zeros((MIB // 2 + 1,), np.float32)], 8,
                                ("split", "shared")), [])

    def test_rows_that_are_broadcast(self):
        x, row = np.zeros((2, 512, 1024), "f4"), np.zeros(1024, "f4")
        column = np.zeros((2, 512, 1), "f4")
        parts = lambda expression, *arrays: [
            s.begin_part for s in self.plan("broadcast_rows", arrays, 2, expression=expression)]
        self.assertEqual(parts("x0 + x1", x, row), [0, 512])
        self.assertEqual(parts("x0 + x1 * x2", row[None, None], x, column), [0, 512])
        for arrays in ((x, x[0]), (x, row[None, None, None]), (x[:1, :1], row), (x, x[:, :1])):
            self.assertEqual(parts("x0 + x1", *arrays), [])
        self.assertEqual(parts("dropout(x0, 0.5)", x), [])
        self.assertEqual(self.plan("broadcast_rows", [x], 2), [])

    def test_products(self):
        shapes = lambda a, b, **given: [s.shape for s in self.plan(
            "product_rows", [np.zeros(a, "f4"), np.zeros(b, "f4")], 2, **given)]
        self.assertEqual(shapes((4096, 512), (512, 64)), [(2048, 512)] * 2)
        self.assertEqual(shapes((4, 1024, 512), (512, 64)), [(2048, 512)] * 2)
        self.assertEqual(shapes((512, 4096), (512, 64), transpose_a=True), [])
        batch = (4, 2, 512, 256), (4, 2, 512, 64)
        self.assertEqual(shapes(*batch, transpose_a=np.True_), [(4, 512, 256)] * 2)
        self.assertEqual(shapes(batch[0], (2, 256, 64)), [])
        self.assertEqual(shapes((4096, 512), (3, 512, 64)), [])

    def test_what_goes_whole(self):
        x = np.zeros((MIB,), np.float32)
        for independence, arrays, connections, attributes in [
                ("none", [x], 4, {}), ("elements", [x], 1, {}), ("elements", [], 4, {}),
                ("elements", [x, x[:-1]], 4, {}), ("elements", [x[:MIB // 2 - 1]], 4, {}),
                ("elements", [x.reshape((1,) * 8 + (-1,))], 4, {}), ("before_axis", [x], 4, {}),
                *(("before_axis", [x.reshape(MIB // 2, 2)], 4, {"axis": axis})
                  for axis in (0, 2, -3, 1.0, True, "1"))]:
            self.assertEqual(self.plan(independence, arrays, connections, **attributes), [])


if __name__ == "__main__":
    main()
