"""The kernels in Triton's language, by Triton's interpreter: no GPU, and NumPy in place of its memory.
Every variant that is compiled meets the op's definition in float64, at sizes around its tile's.

    triton_kernels_test.py [SHARD SHARDS]      with the Python that has Triton; every SHARDS-th test from SHARD on
"""

import math
import os
import sys
import unittest

os.environ["TRITON_INTERPRET"] = "1"
ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "kernels", "triton"))
sys.dont_write_bytecode = True

SKIPPED = 77
try:
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(SKIPPED)

import compile as generator  # noqa: E402

SEED = 13
UNIT = 2.0 ** -24
# By the result's type: half a unit in the last place, relative, and the smallest number above 0; bfloat16 has a whole
# unit, to which the interpreter truncates.
ROUNDING = {"float32": (2.0 ** -24, 2.0 ** -149), "float16": (2.0 ** -11, 2.0 ** -24),
            "bfloat16": (2.0 ** -7, 2.0 ** -133)}


class Memory:
    """The parts of a torch tensor that the interpreter uses: bytes of NumPy's at an address."""

    def __init__(self, data_type, array):
        self.dtype, self.array = data_type, array

    def data_ptr(self):
        return self.array.ctypes.data

    def untyped_storage(self):
        return self

    def cpu(self):
        return self

    def copy_(self, other):
        assert other is self

    def new_empty(self, *_, **__):
        return self

    def set_(self, *_):
        pass

    def storage_offset(self):
        return 0

    def size(self):
        return self.array.shape

    def stride(self):
        return ()


def narrow(values, data_type):
    """Values as memory holds them, rounded to nearest even."""
    values = np.ascontiguousarray(values, np.float32)
    if data_type != "bfloat16":
        return values.astype(data_type)
    bits = values.view(np.uint32)
    rounded = ((bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)


def widen(array, data_type):
    if data_type != "bfloat16":
        return array.astype(np.float64)
    return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def dot(self, a, b, total, *_):
    """Replaces the interpreter's, which multiplies bfloat16 numbers by their bits."""
    a, b = (widen(each.data, "bfloat16").astype(np.float32) if each.dtype.scalar == tl.bfloat16 else each.data
            for each in (a, b))
    return interpreter.TensorHandle(np.matmul(a, b, dtype=total.data.dtype) + total.data, total.dtype.scalar)


def reduce_by_halves(self, inputs):
    """Replaces the interpreter's, which calls the combining function once for each element."""
    parts = [each.handle.data for each in inputs]
    while parts[0].shape[self.axis] > 1:
        halves = [self.to_tensor(half, each.dtype) for each, part in zip(inputs, parts)
                  for half in np.split(part, 2, self.axis)]
        parts = [each.handle.data for each in self.combine_fn.fn(*halves[::2], *halves[1::2])]
    if not self.keep_dims:
        parts = [part.squeeze(self.axis) for part in parts]
    return [self.to_tensor(part, each.dtype) for each, part in zip(inputs, parts)]


interpreter.InterpreterBuilder.create_dot = dot
interpreter.ReduceOps.generic_reduce = reduce_by_halves


def value_of(expression, names):
    return eval(expression, {"ceil": math.ceil}, dict(names))  # ours, which mean the same in Python


def takes(variant, integers):
    names = {**variant.constants, **integers}
    return (all(value_of(expression, names) for expression in variant.requires) and
            all(integers[name] % argument.divisible_by == 0 for name, argument in variant.arguments.items()
                if argument.divisible_by > 1 and not argument.type.startswith("*")))


def run(variant, tensors, integers):
    """Launches the variant on `tensors`, the grid made of `integers` as its manifest says."""
    names = {**variant.constants, **integers}
    grid = tuple(value_of(expression, names) for expression in variant.grid)
    arguments = [variant.constants[name] if name in variant.constants else
                 tensors.get(name, integers.get(name)) for name in variant.kernel.arg_names]
    with np.errstate(all="ignore"):
        variant.kernel[grid](*arguments)


class KernelsTest(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(SEED)

    def for_each_variant(self, op, check):
        for data_type in ROUNDING:
            variants = generator.variants_of(op, data_type)
            self.assertGreater(len(variants), 1)
            for variant in variants:
                with self.subTest(op=op, type=data_type, variant=variant.name):
                    check(data_type, variant)

    def check(self, data_type, got, truth, error):
        relative, least = ROUNDING[data_type]
        both_nan = np.isnan(got) & np.isnan(truth)
        same = both_nan | (got == truth)
        with np.errstate(all="ignore"):
            allowed = error + np.abs(truth) * relative + least
            wrong = ~(same | (np.abs(got - truth) <= allowed))
        if wrong.any():
            at = np.argmax(wrong)
            self.fail(f"{wrong.sum()} of {wrong.size} are wrong, first {np.unravel_index(at, wrong.shape)}: "
                      f"{got.flat[at]!r} for {truth.flat[at]!r}")

    # ---- gelu

    def gelu(self, data_type, variant, values):
        x = Memory(data_type, narrow(values, data_type))
        y = Memory(data_type, narrow(np.full(values.size, np.nan), data_type))
        run(variant, {"x": x, "y": y}, {"count": values.size})
        x, got = widen(x.array, data_type), widen(y.array, data_type)
        with np.errstate(all="ignore"):
            if variant.traits["form"] == "tanh":
                phi = 1 / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))
            else:
                phi = np.array([0.5 * math.erfc(-v / math.sqrt(2)) for v in x])
            truth = np.where(x == -np.inf, 0.0, x * phi)
            # gelu_cases.cc: roundings are relative to x, not to y.
            error = np.where(x < -6, np.abs(truth) + 1e-34, 4 * UNIT * np.abs(x) + 1e-34)
        self.check(data_type, got, truth, error)

    def test_gelu_meets_its_definition_around_its_blocks(self):
        def check(data_type, variant):
            block = variant.constants["BLOCK"]
            for count in (1, block - 1, block, 2 * block + 17):
                self.gelu(data_type, variant, self.random.normal(scale=3, size=count))
        self.for_each_variant("gelu", check)

    def test_gelu_of_large_and_special_values_is_no_nan_unless_they_are(self):
        values = np.concatenate([np.geomspace(1, 6e4, 500), -np.geomspace(1, 6e4, 500),
                                 [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30, -1e-30, 10.05, -10.05]])

        def check(data_type, variant):
            self.gelu(data_type, variant, values)
            if data_type != "float16":
                self.gelu(data_type, variant, np.array([3e38, -3e38, 1e20, -1e20]))
        self.for_each_variant("gelu", check)

    # ---- softmax

    def softmax(self, data_type, variant, values):
        rows, n = values.shape
        integers = {"rows": rows, "n": n}
        self.assertTrue(takes(variant, integers), f"{variant.name} does not take rows of {n}")
        x = Memory(data_type, narrow(values, data_type))
        y = Memory(data_type, narrow(np.full(values.shape, np.nan), data_type))
        run(variant, {"x": x, "y": y}, integers)
        x = widen(x.array, data_type)
        with np.errstate(all="ignore"):
            powers = np.exp(x - x.max(axis=1, keepdims=True))
            truth = powers / powers.sum(axis=1, keepdims=True)
            distance = np.where(truth > 0, np.log(truth.max(axis=1, keepdims=True) / truth), 0)
        # softmax_cases.cc, its generous parts.
        self.check(data_type, widen(y.array, data_type), truth, truth * (48 + 2.5 * distance) * UNIT + 1e-37)

    def sizes_of(self, variant):
        """Rows and columns at the ends of the variant's range."""
        columns, rows = variant.constants["COLUMNS"], variant.constants.get("ROWS", 1)
        step = variant.arguments["n"].divisible_by
        is_loop = "ROWS" not in variant.constants
        lengths = (step, columns + step, 2 * columns, 2 * columns + step) if is_loop else (step, columns)
        if step == 1:
            lengths += (columns - 1, columns // 2 + 1)
        return [(count, n) for count in sorted({1, rows, rows + 1}) for n in lengths]

    def test_softmax_meets_its_definition_around_its_tiles(self):
        def check(data_type, variant):
            for rows, n in self.sizes_of(variant):
                self.softmax(data_type, variant, self.random.normal(scale=4, size=(rows, n)))
        self.for_each_variant("softmax", check)

    def test_softmax_of_special_rows(self):
        def check(data_type, variant):
            n = 2 * variant.constants["COLUMNS"] if "ROWS" not in variant.constants else \
                variant.constants["COLUMNS"]
            values = self.random.normal(size=(6, n))
            values[0, n // 2] = np.nan  # all of the row becomes NaN
            values[1, 0] = np.inf  # and here
            values[2] = -np.inf  # and here
            values[3, :n // 2 + 1] = -np.inf  # zeros beside numbers, the first block of a loop without any
            values[4] += 6e4  # sums of powers overflow unless the greatest value is taken off
            values[5, n - 1] = 50  # one outweighs all
            self.softmax(data_type, variant, values)
        self.for_each_variant("softmax", check)

    # ---- layernorm and rmsnorm

    def norm(self, op, data_type, variant, values, epsilon=1e-5):
        rows, n = values.shape
        numbers = {"rows": rows, "n": n, "root": float(np.float32(math.sqrt(epsilon))),
                   "least": 2.0 ** -126 if epsilon > 0 else 0.0}
        self.assertTrue(takes(variant, numbers), f"{variant.name} does not take rows of {n}")
        x = narrow(values, data_type)
        weight = narrow(self.random.normal(size=n), data_type)
        bias = narrow(self.random.normal(size=n), data_type)
        y = Memory(data_type, narrow(np.full(values.shape, np.nan), data_type))
        tensors = {"x": Memory(data_type, x), "weight": Memory(data_type, weight),
                   "bias": Memory(data_type, bias), "y": y}
        run(variant, tensors, numbers)
        x, weight, bias = (widen(each, data_type) for each in (x, weight, bias))
        centered = op == "layernorm"
        with np.errstate(all="ignore"):
            mean = x.mean(axis=1, keepdims=True) if centered else 0.0
            reciprocal = 1 / np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True) + epsilon)
            weighed = (x - mean) * reciprocal * weight
            truth = weighed + bias if centered else weighed
            # norm_cases.cc, its generous parts.
            sums = 6 * math.sqrt(n / 24 + 11) * UNIT
            magnitude = np.abs(x).mean(axis=1, keepdims=True)
            deviation = np.sqrt(((x - mean) ** 2).mean(axis=1, keepdims=True))
            spread = x.max(axis=1, keepdims=True) - x.min(axis=1, keepdims=True)
            corrected = sums * (17 * deviation + sums * magnitude) + np.minimum(8 * UNIT * np.abs(mean), spread)
            off = np.minimum((sums + 2 * UNIT) * magnitude, corrected) * reciprocal * centered
            error = (10 * UNIT + sums / 2 + off) * np.abs(weighed) + np.abs(weight) * off + UNIT * np.abs(truth)
            error += np.abs(weight) * (1 + reciprocal + math.sqrt(n)) * 2.0 ** -147
        self.check(data_type, widen(y.array, data_type), truth, np.nan_to_num(error))

    def for_each_norm(self, check):
        for op in ("layernorm", "rmsnorm"):
            self.for_each_variant(op, lambda data_type, variant, op=op: check(op, data_type, variant))

    def test_norms_meet_their_definitions_around_their_tiles(self):
        def check(op, data_type, variant):
            for rows, n in self.sizes_of(variant):
                self.norm(op, data_type, variant, self.random.normal(loc=2, scale=3, size=(rows, n)))
        self.for_each_norm(check)

    def test_layernorm_of_rows_of_one_value_and_of_neighbours(self):
        def check(data_type, variant):
            for rows, n in self.sizes_of(variant):
                values = np.repeat(10 ** self.random.uniform(-1, 4, size=(rows, 1)), n, axis=1)
                values[1::2] = np.nextafter(values[1::2].astype(np.float32), np.float32(np.inf))
                values[::2, ::3] = np.nextafter(values[::2, ::3].astype(np.float32), np.float32(np.inf))
                self.norm("layernorm", data_type, variant, values)
        self.for_each_variant("layernorm", check)

    def rows_for(self, variant):
        return 2 * variant.constants["COLUMNS"] if "ROWS" not in variant.constants else variant.constants["COLUMNS"]

    def test_norms_of_rows_whose_squares_leave_float32(self):
        def check(op, data_type, variant):
            values = self.random.normal(size=(5, self.rows_for(variant)))
            if data_type != "float16":
                values[1] *= 2.0 ** 120  # squares and sums overflow, beside a row that stays as it is
                values[2] *= 1e-25  # squares are lost
            values[3] = 3  # nothing is left around the mean
            self.norm(op, data_type, variant, values, epsilon=1e-30)
            self.norm(op, data_type, variant, values, epsilon=1e60)
        self.for_each_norm(check)

    def test_norms_of_special_rows(self):
        def check(op, data_type, variant):
            values = self.random.normal(size=(4, self.rows_for(variant)))
            values[1, 3] = np.nan  # all of the row becomes NaN
            values[2, 5] = np.inf  # layernorm: all NaN, too; rmsnorm: its neighbours become 0
            self.norm(op, data_type, variant, values)
        self.for_each_norm(check)

    # ---- matmul

    def matmul(self, data_type, variant, size):
        m, n, k, batches = size
        layout = variant.traits["layout"]
        a = narrow(self.random.normal(size=(batches, k, m) if layout[0] == "t" else (batches, m, k)), data_type)
        b = narrow(self.random.normal(size=(batches, n, k) if layout[1] == "t" else (batches, k, n)), data_type)
        c = Memory(data_type, narrow(np.full((batches, m, n), np.nan), data_type))
        integers = {"m": m, "n": n, "k": k, "batches": batches, "a_stride": a.shape[2],
                    "b_stride": b.shape[2], "a_batch": m * k, "b_batch": k * n, "c_batch": m * n}
        self.assertTrue(takes(variant, integers), f"{variant.name} does not take {size}")
        run(variant, {"a": Memory(data_type, a), "b": Memory(data_type, b), "c": c}, integers)
        a, b = widen(a, data_type), widen(b, data_type)
        if layout[0] == "t":
            a = a.swapaxes(1, 2)
        if layout[1] == "t":
            b = b.swapaxes(1, 2)
        self.check(data_type, widen(c.array, data_type), a @ b,
                   min(k, 6 * math.sqrt(k)) * UNIT * (np.abs(a) @ np.abs(b)))

    def test_matmul_meets_its_definition_around_its_tiles(self):
        def check(data_type, variant):
            step = variant.arguments["k"].divisible_by
            m, n, k = (variant.constants["TILE_" + letter] for letter in "MNK")
            self.matmul(data_type, variant, (step, step, step, 1))
            self.matmul(data_type, variant, (m + step, 2 * n + step, k + step, 2))
        self.for_each_variant("matmul", check)
        # More than a group of tiles below each other, the last group a smaller one.
        variant = generator.variants_of("matmul", "float32")[1]
        groups = variant.constants["GROUP_M"] + 3
        self.matmul("float32", variant, (groups * variant.constants["TILE_M"], 2 * variant.constants["TILE_N"],
                                         16, 1))

    # ---- linear

    def linear(self, data_type, variant, size, activation):
        m, n, k = size
        x = narrow(self.random.normal(size=(m, k)), data_type)
        weight = narrow(self.random.normal(size=(n, k)), data_type)
        bias = narrow(self.random.normal(size=n), data_type)
        y = Memory(data_type, narrow(np.full((m, n), np.nan), data_type))
        integers = {"m": m, "n": n, "k": k, "activation": ("none", "relu", "gelu", "gelu_erf").index(activation)}
        self.assertTrue(takes(variant, integers), f"{variant.name} does not take {size}")
        run(variant, {"x": Memory(data_type, x), "weight": Memory(data_type, weight),
                      "bias": Memory(data_type, bias), "y": y}, integers)
        x, weight, bias = (widen(each, data_type) for each in (x, weight, bias))
        sums = x @ weight.T + bias
        error = min(k, 6 * math.sqrt(k)) * UNIT * (np.abs(x) @ np.abs(weight).T) + 2 * UNIT * np.abs(sums)
        if activation == "gelu":
            truth = sums / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (sums + 0.044715 * sums ** 3)))
        elif activation == "gelu_erf":
            truth = sums * np.vectorize(lambda v: 0.5 * math.erfc(-v / math.sqrt(2)))(sums)
        else:
            truth = np.maximum(sums, 0) if activation == "relu" else sums
        # linear_cases.cc: gelu is steep by 1.13, and off by 4 units of its argument.
        error = 1.13 * error + (4 * UNIT * np.abs(sums) if activation.startswith("gelu") else 0)
        self.check(data_type, widen(y.array, data_type), truth, error)

    def test_linear_meets_its_definition_around_its_tiles(self):
        def check(data_type, variant):
            step = variant.arguments["k"].divisible_by
            m, n, k = (variant.constants["TILE_" + letter] for letter in "MNK")
            for activation in ("none", "relu", "gelu", "gelu_erf"):
                self.linear(data_type, variant, (step, step, step), activation)
                self.linear(data_type, variant, (m + 1, n + step, k + step), activation)
        self.for_each_variant("linear", check)
        # More than a group of tiles below each other, the last group a smaller one.
        variant = generator.variants_of("linear", "float32")[0]
        groups = variant.constants["GROUP_M"] + 3
        self.linear("float32", variant, (groups * variant.constants["TILE_M"], 2 * variant.constants["TILE_N"], 16),
                    "none")


if __name__ == "__main__":
    suite = unittest.TestSuite()
    first, step = (int(argument) for argument in sys.argv[1:] or (0, 1))
    suite.addTests(list(unittest.defaultTestLoader.loadTestsFromTestCase(KernelsTest))[first::step])
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())
