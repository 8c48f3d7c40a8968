"""warpcall.fuse: functions of Python's as expressions of the kernel fused. Random functions over the whole grammar are
traced, run by the server's reference, and compared with the same source on NumPy's arrays in float64."""

import asyncio
import concurrent.futures
import inspect
import math
import os
import random
import re
import threading
import unittest
from unittest import mock

from support import ROOT, SEED, RealServer, main, np
import warpcall
from warpcall import _trace

FUNCTIONS = 500


def text_of(*path):
    with open(os.path.join(ROOT, *path), encoding="utf-8") as file:
        return file.read()


PARSER = text_of("kernels", "expression", "parser.cc")
GRAMMAR = re.search(r'kAllFunctions\[\] =\n((?:\s+"[^"]*"\n?)+);', PARSER)[1]
NAMES = re.findall(r"\w+", GRAMMAR)


def expression(function):
    return warpcall.fuse(function).expression


class ServerTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = cls.enterClassContext(RealServer())
        cls.gpu = cls.enterClassContext(warpcall.connect(cls.server.address, timeout=60))


# ---- texts --------------------------------------------------------------------------------------


class TextTest(unittest.TestCase):
    def test_operators_keep_their_order(self):
        for function, text in (
                (lambda a, b, c: a + b + c, "x0 + x1 + x2"), (lambda a, b, c: a + (b + c), "x0 + (x1 + x2)"),
                (lambda a, b, c: a - (b - c), "x0 - (x1 - x2)"), (lambda a, b, c: a / (b * c), "x0 / (x1 * x2)"),
                (lambda a, b, c: a * b / c, "x0 * x1 / x2"), (lambda a, b, c: (a + b) * c, "(x0 + x1) * x2"),
                (lambda a, b: -(a + b), "-(x0 + x1)"), (lambda a, b: -a * b, "-x0 * x1"),
                (lambda a, b: -(a * b), "-(x0 * x1)"), (lambda a, b: a - -b, "x0 - -x1"), (lambda a: -(-a), "--x0"),
                (lambda a: 2 * a - 1, "2 * x0 - 1"), (lambda a: 2 - a, "2 - x0"), (lambda a: 1 / a, "1 / x0"),
                (lambda a: a * -2.5, "x0 * -2.5"), (lambda a: +a, "x0"), (lambda a: abs(a), "abs(x0)"),
                (lambda a: a ** 2, "pow(x0, 2)"), (lambda a: a ** -0.5, "pow(x0, -0.5)"),
                (lambda a: 2 ** a, "exp2(x0)"), (lambda a: a * a, "x0 * x0"),
                (lambda a, b: (a - b) * (a - b), "(x0 - x1) * (x0 - x1)")):
            self.assertEqual(expression(function), text)

    def test_a_square_names_its_operand_once(self):
        def square(a, b):
            d = a - b
            return d * d + np.square(d)
        self.assertEqual(expression(square), "pow(x0 - x1, 2) + pow(x0 - x1, 2)")

    def test_comparisons_choose(self):
        where = warpcall.where
        for function, text in (
                (lambda a, b: where(a < b, a, 0), "where(x0 < x1, x0, 0)"),
                (lambda a, b: where(a + b <= 1, a, b), "where(x0 + x1 <= 1, x0, x1)"),
                (lambda a, b: np.where(0 > a, a, b), "where(x0 < 0, x0, x1)"),
                (lambda a, b: np.where(np.float32(0.5) >= a, a, b), "where(0.5 >= x0, x0, x1)"),
                (lambda a, b: where(a == b, 1, 0), "where(x0 == x1, 1, 0)"),
                (lambda a, b: where(a != b, 1, 0), "where(x0 == x1, 0, 1)"),
                (lambda a, b: where(~(a >= b), 1, 0), "where(x0 >= x1, 0, 1)"),
                (lambda a, b: where(np.logical_not(a != b), 1, 0), "where(x0 == x1, 1, 0)")):
            self.assertEqual(expression(function), text)

    def test_each_way_to_write_a_function(self):
        for name in ("exp", "exp2", "log", "sqrt", "tanh", "abs"):
            self.assertEqual(expression(lambda x: getattr(np, name)(x)), f"{name}(x0)")
        for name in set(NAMES) - {"min", "max", "pow", "where", "dropout"}:
            self.assertEqual(expression(lambda x: getattr(warpcall, name)(x)), f"{name}(x0)")
        for name in ("sum", "mean", "var", "max", "min"):
            for function in (lambda x: getattr(np, name)(x, axis=-1, keepdims=True),
                             lambda x: getattr(x, name)(axis=-1, keepdims=True),
                             lambda x: getattr(x, name)(-1, keepdims=True),
                             lambda x: getattr(warpcall, name)(x),
                             lambda x: getattr(warpcall, name)(x, axis=-1, keepdims=True)):
                self.assertEqual(expression(function), f"{name}(x0)")
        for function, text in (
                (lambda a, b: np.maximum(a, b), "max(x0, x1)"), (lambda a, b: warpcall.max(a, b), "max(x0, x1)"),
                (lambda a, b: np.minimum(a, b), "min(x0, x1)"), (lambda a, b: warpcall.min(a, b), "min(x0, x1)"),
                (lambda a: np.amax(a, -1, keepdims=True) + np.amin(a, -1, keepdims=True), "max(x0) + min(x0)"),
                (lambda a: np.clip(a, -1, 1), "min(max(x0, -1), 1)"),
                (lambda a: a.clip(0, 1), "min(max(x0, 0), 1)"), (lambda a: np.reciprocal(a), "1 / x0"),
                (lambda a: np.clip(a, a_max=2, a_min=0), "min(max(x0, 0), 2)"),
                (lambda a: np.power(a, 3), "pow(x0, 3)"), (lambda a: warpcall.pow(a, 3), "pow(x0, 3)"),
                (lambda a: np.negative(np.fabs(a)), "-abs(x0)"), (lambda a: np.array(2.5) * a, "2.5 * x0"),
                (lambda a: warpcall.dropout(a, 0.25), "dropout(x0, 0.25)"),
                (lambda a: warpcall.softmax(a, axis=-1), "softmax(x0)")):
            self.assertEqual(expression(function), text)

    def test_all_functions_of_the_grammar_are_there(self):
        self.assertGreater(len(NAMES), 20)
        for name in NAMES:
            self.assertIn(name, dir(warpcall))
            self.assertIn(name, _trace._KNOWN)
        for name in {"abs", "max", "min", "pow", "sum"}:  # `from warpcall import *` leaves Python's own
            self.assertNotIn(name, warpcall.__all__)

    def test_everything_but_the_inputs_is_of_the_moment(self):
        scale = 3

        def f(x, *others, power=2):
            for i in range(scale):
                x = x + i
            for other in others:
                x = x * other
            return x ** power if len(others) < 2 else x
        fused = warpcall.fuse(f)
        self.assertEqual([fused.expression_for(i) for i in (1, 2, 3)],
                         ["pow(x0 + 0 + 1 + 2, 2)", "pow((x0 + 0 + 1 + 2) * x1, 2)", "(x0 + 0 + 1 + 2) * x1 * x2"])

    def test_one_function_calls_another(self):
        @warpcall.fuse
        def inner(x, scale=2.0):
            return warpcall.tanh(x) * scale

        @warpcall.fuse
        def outer(x, y):
            return inner(x + y) - inner(y, scale=x)
        self.assertEqual(outer.expression, "tanh(x0 + x1) * 2 - tanh(x1) * x0")
        self.assertEqual(inner.expression_for(1), "tanh(x0) * 2")

    def test_it_is_the_function_to_those_who_ask(self):
        def f(x, b=1):
            """Says what it is."""
            return x + b
        fused = warpcall.fuse(f)
        self.assertEqual((fused.__name__, fused.__doc__, fused.__wrapped__), ("f", "Says what it is.", f))
        self.assertEqual(repr(fused), "<warpcall.Fused f(x, b)>")
        self.assertEqual(fused.__wrapped__(2, 3), 5)


class NumbersTest(ServerTest):
    def test_it_is_no_kernel(self):
        twice, gpu = warpcall.fuse(lambda x: x * 2), self.gpu
        for call in (lambda: gpu.run(twice, [1.0]), lambda: gpu.submit(warpcall.gelu, [1.0]),
                     lambda: gpu.benchmark(twice, "4")):
            with self.assertRaisesRegex(warpcall.InvalidArgument, r'run\("fused", x, expression=f\)'):
                call()

    def test_they_read_back_as_they_are(self):
        pick = random.Random(SEED)
        largest = float(np.finfo(np.float32).max)
        values = [0.0, 0.1, 1 / 3, 1e-5, 1e16, 1e22, 123456789.0, largest, 2.0**-149, 5e-324, 1e-45]
        for _ in range(200):
            single = np.float32(pick.uniform(1, 2) * 2.0 ** pick.randrange(-126, 127))
            middle = (float(single) + float(np.nextafter(single, np.float32(np.inf)))) / 2
            values += [float(single), np.nextafter(middle, 0), middle, np.nextafter(middle, np.inf)]
        values += [-value for value in values]
        for value in values:
            text = expression(lambda x: x + value).removeprefix("x0 + ")
            self.assertEqual(np.float64(text).tobytes(), np.float64(value).tobytes(), text)
        for first in range(0, len(values), 7):
            some = values[first:first + 7]
            # Each in a column of its own.
            fused = warpcall.fuse(lambda x: self.picked(x, some))
            columns = np.arange(len(some), dtype=np.float32)
            result = np.asarray(self.gpu.fused(fused, columns, implementation="reference"))
            self.assertEqual(result.tobytes(), np.array(some, np.float32).tobytes(), fused.expression)

    @staticmethod
    def picked(x, values):
        result = values[0]
        for i, value in enumerate(values[1:], 1):
            result = warpcall.where(x == i, value, result)
        return result

    def test_numbers_of_other_types(self):
        for value, text in ((True, "1"), (7, "7"), (10**20, "1e+20"), (np.int64(-3), "-3"), (-0.0, "-0"),
                            (np.float16(0.1), "0.0999755859375"), (np.float32(0.1), "0.10000000149011612"),
                            (np.float64(0.1), "0.1"), (np.bool_(False), "0"), (np.array(1.5), "1.5")):
            self.assertEqual(expression(lambda x: x * value), f"x0 * {text}")
            self.assertEqual(expression(lambda x: value * x), f"{text} * x0")


# ---- refusals -----------------------------------------------------------------------------------


class RefusalTest(unittest.TestCase):
    def refused(self, function, pattern, inputs=None, error=warpcall.InvalidArgument):
        """By the line with the mark, or by the first one of the function."""
        with self.assertRaisesRegex(error, pattern) as raised:
            fused = warpcall.fuse(function)
            fused.expression_for(inputs or fused._parameters.most)
        lines, first = inspect.getsourcelines(function)
        marked = [i for i, line in enumerate(lines) if "# here" in line]
        place = f"{__file__}:{first + (marked[0] if marked else 0)}"
        self.assertTrue(raised.exception.message.startswith(place), (raised.exception.message, place))
        if marked:
            self.assertIn(f"(`{lines[marked[0]].strip()}`)", raised.exception.message)

    def test_control_flow(self):
        def branch(x):
            if x > 0:  # here
                return x
            return -x

        def of_a_value(x):
            while x:  # here
                x = x - 1
            return x

        def both(x):
            return warpcall.where(x > 0 and x < 1, x, 0)  # here

        def chain(x):
            return warpcall.where(0 < x < 1, x, 0)  # here

        def pythons_max(x):
            return max(x, 0)  # here

        def inside(x):
            return x if x in (1, 2) else -x  # here
        for function in (branch, of_a_value, both, chain, pythons_max, inside):
            self.refused(function, r"is neither true nor false, .*use warpcall\.where\(condition, a, b\) in place of")

    def test_elements(self):
        def loop(x):
            for row in x:  # here
                return row

        def unpacked(x):
            a, b = x  # here
            return a + b

        def picked(x):
            return x[0] + x  # here

        def written(x):
            x[x < 0] = 0  # here
            return x

        def length(x):
            return x / len(x)  # here
        self.refused(loop, "x0 cannot be iterated over")
        self.refused(unpacked, "x0 cannot be iterated over")
        self.refused(picked, "x0 cannot be indexed: slice the array before the call")
        self.refused(written, r"x0 cannot be assigned to by index: use warpcall\.where")
        self.refused(length, "x0 has no length")

    def test_numbers_of_values(self):
        def real(x):
            return x * float(x + 1)  # here

        def of_math(x):
            return math.exp(x)  # here

        def whole(x):
            return x * int(x)  # here

        def counted(x):
            for _ in range(x):  # here
                x = x + 1
            return x

        def array(x):
            return np.asarray(x) + x  # here
        self.refused(real, r"x0 \+ 1 is no number, .*in place of float\(\) and functions of math use warpcall's")
        self.refused(of_math, "x0 is no number")
        self.refused(whole, r"x0 is no number, .*int\(\)")
        self.refused(counted, "x0 is no integer")
        self.refused(array, "x0 cannot become an array")

    def test_types_and_shapes(self):
        def typed(x):
            return x.astype("float64")  # here

        def shaped(x):
            return x / x.shape[-1]  # here

        def turned(x):
            return x.T  # here
        self.refused(typed, "no astype: inputs have one type, .* dtype= of the call")
        self.refused(shaped, "no shape: the function is traced once, without data", error=AttributeError)
        self.refused(turned, "no T: fused has .*softmax")
        self.assertEqual(expression(lambda x: x + hasattr(x, "shape")), "x0 + 0")

    def test_other_reductions(self):
        def everything(x):
            return x - x.sum()  # here

        def columns(x):
            return x - np.mean(x, axis=0, keepdims=True)  # here

        def two(x):
            return x - x.max(axis=(-1, -2), keepdims=True)  # here

        def dropped(x):
            return x - x.max(axis=-1)  # here

        def sample(x):
            return x.var(axis=-1, ddof=1, keepdims=True)  # here

        def wide(x):
            return np.sum(x, -1, np.float64, keepdims=True)  # here

        def along(x):
            return warpcall.softmax(x, axis=0)  # here

        def of_ours(x):
            return warpcall.min(x, axis=1)  # here

        def scalar(x):
            return warpcall.sum(x, keepdims=False)  # here
        self.refused(everything, "sum over all axes; fused has the last axis alone: pass axis=-1")
        self.refused(columns, "mean over axis 0; fused has the last axis alone")
        self.refused(two, r"max over axis \(-1, -2\)")
        self.refused(dropped, "max keeps the last axis, with size 1: pass keepdims=True")
        self.refused(sample, "var takes a value, axis=-1 and keepdims=True, got ddof")
        self.refused(wide, "sum takes a value, axis=-1 and keepdims=True, got 3 arguments")
        self.refused(along, "softmax over axis 0")
        self.refused(of_ours, "min over axis 1")
        self.refused(scalar, "sum keeps the last axis")

    def test_functions_that_fused_has_not(self):
        def sine(x):
            return np.sin(x)  # here

        def whole(x):
            return x // 2  # here

        def product(x, w):
            return x @ w  # here

        def both(x):
            return warpcall.where((x > 0) & (x < 1), x, 0)  # here

        def sorts(x):
            return np.sort(x)  # here

        def folds(x):
            return np.add.reduce(x, axis=-1, keepdims=True)  # here

        def typed(x):
            return np.exp(x, dtype=np.float64)  # here

        def in_place(x):
            x += 1  # here
            return x

        def elsewhere(x):
            return np.zeros(3) + warpcall.exp(2.0) * x  # here
        self.refused(sine, "numpy.sin of a traced value: fused has .*gelu")
        self.refused(whole, "numpy.floor_divide of a traced value: fused has")
        self.refused(product, r"gpu\.matmul\(a, b\)")
        self.refused(both, r"nest them, where\(a, where\(b, x, y\), y\) for a & b")
        self.refused(sorts, "numpy.sort of a traced value: fused has")
        self.refused(folds, r"numpy\.add\.reduce of a traced value")
        self.refused(typed, "takes no dtype")
        self.refused(in_place, "add in place; .*write x = x \\+ y for x \\+= y")
        self.refused(elsewhere, r"no operand is a traced value \(got float\)")

    def test_operands(self):
        rows, kept = np.ones((2, 3)), []

        def constant(x):
            return x + rows  # here

        def infinite(x):
            return warpcall.where(x > 0, x, -np.inf)  # here

        def no_number(x):
            return x * np.nan  # here

        def large(x):
            return x * 3.41e38  # here

        def huge(x):
            return x * 10**400  # here

        def text(x):
            return x + "1"  # here

        def imaginary(x):
            return x * 1j  # here

        def nothing(x):
            return warpcall.where(x == None, x, 0)  # here  # noqa: E711

        def truth(x):
            return x * (x > 0)  # here

        def mask(x, m):
            return warpcall.where(m, x, 0)  # here

        def choice(x):
            return np.where(True, x, 0)  # here

        def exponent(x, y):
            return x ** y  # here

        def base(x):
            return 3 ** x  # here

        def turned(x):
            return warpcall.where(~x, 1, 0)  # here

        def foreign(x):
            return x + kept[0]  # here
        self.refused(constant, r"a ndarray of shape \[2, 3\] cannot be a constant .*make it a parameter")
        self.refused(infinite, r"-inf cannot stand in an expression; .*largest is 3\.4028\d+e\+38: pass it as an input")
        self.refused(no_number, "nan cannot stand in an expression")
        self.refused(large, r"3\.41e\+38 cannot stand in an expression")
        self.refused(huge, "0 cannot stand in an expression")
        self.refused(text, "an operand is a str; it must be a traced value or a real number")
        self.refused(imaginary, "an operand is a complex")
        self.refused(nothing, "an operand is a NoneType")
        self.refused(truth, r"the comparison x0 > 0 stands only .*where\(condition, 1\.0, 0\.0\)")
        self.refused(mask, "the first argument of where is <traced x1>; it must be a comparison, such as x > 0")
        self.refused(choice, "the first argument of where is a bool")
        self.refused(exponent, "the exponent is traced; it must be a number")
        self.refused(base, r"for a number a write exp\(x \* log\(a\)\) in place of a \*\* x")
        self.refused(turned, "~ and logical_not take a comparison")
        warpcall.fuse(lambda x: kept.append(x) or x).expression
        self.refused(foreign, "this mixes traced values of two functions, or of two runs of one")

    def test_dropout(self):
        def twice(x):
            kept = warpcall.dropout(x, 0.5)
            return warpcall.tanh(kept) + kept  # here

        def certain(x):
            return warpcall.dropout(x, 1.5)  # here

        def traced(x):
            return warpcall.dropout(x, x)  # here
        self.refused(twice, "a result of dropout is used twice, .*pass the result as an input")
        self.refused(certain, "dropout's probability is 1.5; it must be a number from 0 to 1")
        self.refused(traced, "dropout's probability is <traced x0>; it must be a number from 0 to 1")
        # Two calls have two masks, and the server computes a square of one.
        self.assertEqual(expression(lambda x: warpcall.dropout(x, 0.5) + warpcall.dropout(x, 0.5)),
                         "dropout(x0, 0.5) + dropout(x0, 0.5)")
        self.assertEqual(expression(lambda x: warpcall.dropout(x, 0) ** 2), "pow(dropout(x0, 0), 2)")
        self.assertEqual(expression(lambda x: np.square(warpcall.dropout(x, 1))), "pow(dropout(x0, 1), 2)")

    def test_parameters(self):
        def none():
            return 1

        def named(x, *, scale):
            return x * scale

        def options(x, **others):
            return x

        def nine(a, b, c, d, e, f, g, h, i):
            return a

        def unused(x, bias, scale):
            return x * scale

        def starred(*xs):
            return xs[0] + xs[2]
        self.refused(none, "none takes 0 inputs; it must be 1 to 8")
        self.refused(named, "named has the parameter scale, to be given by name")
        self.refused(options, r"options has the parameter \*\*others")
        self.refused(nine, "nine takes 9 inputs; it must be 1 to 8")
        self.refused(unused, "parameter bias of unused has no part in the result: remove it")
        self.refused(starred, r"parameter \*xs of starred has no part in the result", inputs=3)
        self.refused(unused, r"unused\(x, bias, scale\) takes 3 inputs, got 2", inputs=2)
        self.refused(starred, r"starred\(\*xs\) takes 1 to 8 inputs, got 9", inputs=9)
        for what in (3, np.exp):
            with self.assertRaisesRegex(warpcall.InvalidArgument, "it must be a function that `def` or `lambda` made"):
                warpcall.fuse(what)
        with self.assertRaisesRegex(warpcall.InvalidArgument, r"f takes 1 to 2 inputs, .*use expression_for\(number\)"):
            def f(x, y=1):
                return x + y
            warpcall.fuse(f).expression

    def test_results(self):
        kept = []

        def pair(x):
            return x, -x

        def number(x):
            return 1.0

        def nothing(x):
            x + 1

        def comparison(x):
            return x > 0

        def old(x):
            kept.append(x + 1)
            return kept[0]
        self.refused(pair, "pair returns a tuple; fused has one result: fuse a function for each")
        self.refused(number, "number returns a float; it must return a value computed from its inputs")
        self.refused(nothing, "nothing returns None: a return is missing")
        self.refused(comparison, r"comparison returns a comparison: return where\(condition, 1\.0, 0\.0\)")
        expression(old)
        self.refused(old, "old returns a value of another function, or of another run")

    def test_its_own_errors_stay(self):
        def broken(x):
            raise KeyError("mine")
        with self.assertRaisesRegex(KeyError, "mine"):
            warpcall.fuse(broken).expression

    def test_without_a_server(self):
        @warpcall.fuse
        def f(x):
            return x + 1
        with self.assertRaisesRegex(warpcall.InvalidArgument, r"f runs on a server: call gpu\.fused\(f, \.\.\.\)"):
            f(np.ones(3))
        with self.assertRaisesRegex(warpcall.InvalidArgument, r"\(got ndarray\).*call a client's kernels"):
            warpcall.gelu(np.ones(3))


class LimitsTest(ServerTest):
    def test_they_are_the_servers(self):
        header = text_of("kernels", "expression", "parser.h")
        for name, value in (("Inputs", _trace.INPUTS_MAX), ("Operations", _trace.OPERATIONS_MAX),
                            ("Depth", _trace.DEPTH_MAX), ("Characters", _trace.CHARACTERS_MAX)):
            self.assertIn(f"k{name}Max = {value};", header)

    def check(self, make, most, what):
        """make(n) is a function whose expression counts n; the server takes the most, and both refuse one more."""
        x = np.ones(3, np.float32)
        self.gpu.fused(warpcall.fuse(make(most)), x)
        with self.assertRaisesRegex(warpcall.InvalidArgument, f"the expression has {most + 1} {what}.* here; at most"
                                                              f" {most} are allowed.*split the function"):
            warpcall.fuse(make(most + 1)).expression
        with mock.patch.multiple(_trace, OPERATIONS_MAX=9999, DEPTH_MAX=9999, CHARACTERS_MAX=9999):
            over = warpcall.fuse(make(most + 1)).expression
        with self.assertRaisesRegex(warpcall.InvalidArgument, f"{most + 1}.*at most {most}"):
            self.gpu.fused(over, x)

    @staticmethod
    def repeated(step, count, x):
        for _ in range(count):
            x = step(x)
        return x

    def test_operations(self):
        self.check(lambda n: lambda x: self.repeated(lambda x: x + 1, n, x), 256, "operations")
        # The sign of a number is one, a comparison is one, and a call.
        self.check(lambda n: lambda x: self.repeated(
            lambda y: y * -1, n // 2, self.repeated(lambda y: y + 1, n % 2, x)), 256, "operations")
        self.check(lambda n: lambda x: self.repeated(
            lambda y: y + warpcall.where(x < 1, 1, 0), n // 3, self.repeated(lambda y: y + 1, n % 3, x)),
            256, "operations")

    def test_depth(self):
        levels = "levels of parentheses"
        self.check(lambda n: lambda x: self.repeated(lambda x: -x, n, x), 64, levels)
        self.check(lambda n: lambda x: self.repeated(warpcall.tanh, n, x), 64, levels)
        self.check(lambda n: lambda x: self.repeated(lambda x: 1 - x, n + 1, x), 64, levels)
        # The sign of a number is a level.
        self.check(lambda n: lambda x: self.repeated(warpcall.tanh, n - 1, x * -2), 64, levels)

    def test_characters(self):
        def make(n):
            long, rest = divmod(n - len("x0"), len(" * 0.1234567890123456"))
            if rest < 4:
                long, rest = long - 1, rest + len(" * 0.1234567890123456")

            def f(x):
                x = self.repeated(lambda x: x * 0.1234567890123456, long, x)
                x = self.repeated(lambda x: x + 1, rest // 4 - 1, x)
                return x + 10 ** (rest % 4)
            return f
        self.assertEqual(len(expression(make(1000))), 1000)
        self.check(make, 4096, "characters")

    def test_what_is_used_twice_counts_twice(self):
        def doubled(x):
            for _ in range(12):
                x = x + warpcall.tanh(x)
            return x
        with self.assertRaisesRegex(warpcall.InvalidArgument, "a value that is used twice counts twice"):
            warpcall.fuse(doubled).expression


# ---- random functions ---------------------------------------------------------------------------


def elementwise(function):
    return lambda x: np.asarray(np.frompyfunc(function, 1, 1)(x), np.float64)


class OnArrays:
    """The package's functions on NumPy's arrays, in float64, by their definitions."""

    erf = staticmethod(elementwise(math.erf))
    exp, exp2, log, sqrt, tanh, abs, pow = (staticmethod(getattr(np, name)) for name in (
        "exp", "exp2", "log", "sqrt", "tanh", "abs", "power"))
    where = staticmethod(np.where)

    def __init__(self, seed):
        self.seed = seed

    def rsqrt(self, x):
        return 1 / np.sqrt(x)

    def sigmoid(self, x):
        return 1 / (1 + np.exp(-x))

    def relu(self, x):
        return np.maximum(x, 0)

    def silu(self, x):
        return x * self.sigmoid(x)

    def gelu(self, x):
        return x * self.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))

    def gelu_erf(self, x):
        return x * (1 + self.erf(x / math.sqrt(2))) / 2

    def softmax(self, x):
        powers = np.exp(x - x.max(axis=-1, keepdims=True))
        return powers / powers.sum(axis=-1, keepdims=True)

    def sum(self, x):
        return np.sum(x, axis=-1, keepdims=True)

    def mean(self, x):
        return np.mean(x, axis=-1, keepdims=True)

    def var(self, x):
        return np.mean((x - self.mean(x)) ** 2, axis=-1, keepdims=True)

    def max(self, x, other=None):
        return np.max(x, axis=-1, keepdims=True) if other is None else np.maximum(x, other)

    def min(self, x, other=None):
        return np.min(x, axis=-1, keepdims=True) if other is None else np.minimum(x, other)

    def dropout(self, x, probability):
        """By kernels/expression/mask.h: the expression's first call."""
        words = [philox((place // 4, 0, 0, 0), (self.seed, 0))[place % 4] for place in range(x.size)]
        keep = np.array(words, np.float64).reshape(x.shape) >= round(probability * 2**32)
        return np.where(keep, x * float(np.float32(1 / (1 - probability))), 0)


def philox(counter, key):
    """Philox 4x32-10 (Salmon and others, 2011)."""
    for i in range(10):
        product0, product1 = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        keys = [(key[j] + i * step) % 2**32 for j, step in enumerate((0x9E3779B9, 0xBB67AE85))]
        counter = (product1 >> 32 ^ counter[1] ^ keys[0], product1 % 2**32,
                   product0 >> 32 ^ counter[3] ^ keys[1], product0 % 2**32)
    return counter


# Statements: {a} to {d} are values, {k} a number. What would leave the domain or grow without bounds is kept from it.
ONE = ["-{a}", "+{a}", "abs({a})", "np.abs({a})", "w.abs({a})", "np.fabs({a})", "np.exp(np.minimum({a}, 3))",
       "w.exp(w.min({a}, 3))", "np.exp2(w.min({a}, 4))", "w.exp2(np.minimum({a}, 4))", "2 ** np.clip({a}, -4, 4)",
       "np.log(abs({a}) + 0.5)", "w.log(abs({a}) + 1)", "np.sqrt(abs({a}))", "w.sqrt(w.relu({a}))",
       "w.rsqrt({a} * {a} + 0.25)", "np.tanh({a})", "w.tanh({a})", "w.erf({a})", "w.sigmoid({a})", "w.relu({a})",
       "np.maximum({a}, 0)", "w.gelu({a})", "w.gelu_erf({a})", "w.silu({a})", "{a} ** 2", "{a} ** 3", "np.square({a})",
       "w.pow(abs({a}) + 0.5, -1.5)", "(abs({a}) + 0.25) ** 0.5", "np.reciprocal({a} * {a} + 0.5)",
       "np.clip({a}, -1, 0.75)", "{a}.clip(-1, 0.5)", "w.softmax({a})", "{a}.sum(axis=-1, keepdims=True)", "w.sum({a})",
       "np.sum({a}, axis=-1, keepdims=True)", "{a}.mean(-1, keepdims=True)", "w.mean({a})",
       "np.mean({a}, axis=-1, keepdims=True)", "{a}.var(axis=-1, keepdims=True)", "w.var({a})",
       "np.var({a}, axis=-1, keepdims=True)", "{a}.max(axis=-1, keepdims=True)", "w.max({a})",
       "np.max({a}, axis=-1, keepdims=True)", "{a}.min(axis=-1, keepdims=True)", "w.min({a})",
       "np.amin({a}, axis=-1, keepdims=True)", "{a} + {k}", "{k} - {a}", "{a} * {k}", "np.float32({k}) * {a}",
       "{k} / (abs({a}) + 0.5)", "np.maximum({a}, {k})", "w.min({k}, {a})"]
TWO = ["{a} + {b}", "np.add({a}, {b})", "{a} - {b}", "np.subtract({a}, {b})", "{a} * {b}", "np.multiply({a}, {b})",
       "{a} / (abs({b}) + 0.5)", "np.divide({a}, {b} * {b} + 1)", "np.maximum({a}, {b})", "w.max({a}, {b})",
       "np.minimum({a}, {b})", "w.min({a}, {b})", "{a} - ({b} + {k})", "{a} / (4 * (w.sigmoid({b}) + 0.25))"]
# In a condition {a} and {b} are inputs or numbers, whose equality is no matter of rounding.
CHOICES = ["{f}({a} {sign} {b}, {c}, {d})", "{f}(~({a} {sign} {b}), {c}, {d})", "{f}({a} {sign} {k}, {c}, {k})",
           "{f}({k} {sign} {a}, -{c}, {d})"]
SIGNS = ["<", "<=", ">", ">=", "==", "!="]


class RandomFunction:
    """Statements over inputs x0 and so on, each a value, of which the last one is the result."""

    def __init__(self, pick):
        self.pick = pick
        self.inputs = [f"x{i}" for i in range(pick.randint(1, 5))]
        self.needs = {name: {name} for name in self.inputs}  # the inputs in each value
        self.once = set()  # values with dropout, which are used once
        self.statements = []
        for _ in range(pick.randint(1, 9)):
            self.add(*self.random_statement())
        for name in self.inputs:
            last = self.last()
            if name not in self.needs[last]:
                self.add(pick.choice(TWO), {"a": last, "b": name})

    def last(self):
        return self.statements[-1][0]

    def value(self):
        return self.pick.choice([*self.needs][-6:])

    def random_statement(self):
        pick = self.pick
        kind = pick.random()
        if kind < 0.45:
            return pick.choice(ONE), {"a": self.value()}
        if kind < 0.78:
            return pick.choice(TWO), {"a": self.value(), "b": self.value()}
        if kind < 0.94 or any("dropout" in text for _, text in self.statements):
            names = {"a": pick.choice(self.inputs), "b": pick.choice(self.inputs), "c": self.value(), "d": self.value()}
            choice = pick.choice(CHOICES).replace("{f}", pick.choice(["np.where", "w.where"]))
            return choice.replace("{sign}", pick.choice(SIGNS)), names
        return "w.dropout({a}, " + pick.choice(["0.5", "0.125", "0"]) + ")", {"a": self.value()}

    def number(self):
        value = self.pick.choice([self.pick.randint(-3, 3), self.pick.randint(-12, 12) / 4, self.pick.gauss(0, 1)])
        return repr(value if type(value) is int else float(np.float32(value)))

    def add(self, template, names):
        while "{k}" in template:
            template = template.replace("{k}", self.number(), 1)
        used = [name for key, name in names.items() if f"{{{key}}}" in template]
        if len(used) > len({*used}) and self.once & {*used}:
            return
        name = f"t{len(self.statements)}"
        self.statements.append((name, template.format(**names)))
        self.needs[name] = set().union(*(self.needs[each] for each in used))
        spent = self.once & {*used}
        for each in spent:
            del self.needs[each]
        if spent or "dropout" in template:
            self.once.add(name)

    def source(self):
        lines = [f"    {name} = {text}" for name, text in self.statements]
        return "\n".join([f"def f({', '.join(self.inputs)}):", *lines, f"    return {self.last()}"])

    def traced(self):
        names = {"np": np, "w": warpcall}
        exec(self.source(), names)
        return warpcall.fuse(names["f"])

    def on_arrays(self, arrays, seed):
        """The values of all statements, in order."""
        names = {"np": np, "w": OnArrays(seed), **dict(zip(self.inputs, arrays))}
        for name, text in self.statements:
            names[name] = eval(text, names)
        return [np.asarray(names[name]) for name, _ in self.statements]


SHAPES = [(5,), (3, 5), (3, 1), (1, 5), (1,), (2, 3, 5), (2, 1, 5), (2, 1, 1)]


class RandomTest(ServerTest):
    def test_random_functions_are_numpys(self):
        pick, tried, large, said = random.Random(SEED), 0, 0, set()
        while tried < FUNCTIONS:
            function = RandomFunction(pick)
            # Quarters, so that some are equal.
            arrays = [np.array([pick.randint(-9, 9) / 4 for _ in range(math.prod(shape))]).reshape(shape)
                      for shape in pick.choices(SHAPES, k=len(function.inputs))]
            seed = pick.randrange(1 << 20)
            values = function.on_arrays(arrays, seed)
            if not all(np.abs(value).max() < 1e4 for value in values):
                continue
            try:
                fused = function.traced()
                text = fused.expression
            except warpcall.InvalidArgument as error:
                self.assertIn("at most", error.message, function.source())
                large += 1
                continue
            tried += 1
            said |= {*re.findall(r"[a-z_]\w*(?=\()|[<>=]=?|[-+*/]", text)}
            result = self.gpu.fused(fused, *(array.astype(np.float32) for array in arrays), seed=seed,
                                    implementation="reference")
            expected = np.broadcast_to(values[-1], np.broadcast_shapes(*(array.shape for array in arrays)))
            self.assertEqual(result.shape, expected.shape)
            # Rounded once, to float32. In float64 no step loses more than a few digits.
            np.testing.assert_allclose(result, expected, rtol=2.0**-23, atol=1e-7,
                                       err_msg=f"{function.source()}\n{text}")
        self.assertLess(large, FUNCTIONS / 2)
        self.assertLessEqual({*NAMES, *"+-*/", "<", "<=", ">", ">=", "=="}, said)

    def test_what_is_not_a_number(self):
        nan, inf = math.nan, math.inf
        x = np.array([nan, inf, -inf, 0, -0.0, 1, nan], np.float32)
        y = np.array([0, inf, inf, -0.0, 0, nan, nan], np.float32)
        for f in (lambda a, b: np.where(a != b, a, 7), lambda a, b: np.where(~(a < b), a, 7),
                  lambda a, b: np.where(~(a != b), a, b), lambda a, b: np.where(a >= b, a, 7),
                  lambda a, b: np.maximum(a, b), lambda a, b: np.minimum(a, b), lambda a, b: a - b, lambda a, b: a / b,
                  lambda a, b: np.clip(a + b, -1, 1), lambda a, b: abs(a) * -b):
            with np.errstate(all="ignore"):
                expected = f(x, y)
            for implementation in ("reference", "cpu"):
                np.testing.assert_array_equal(self.gpu.fused(warpcall.fuse(f), x, y, implementation=implementation),
                                              expected)

    def test_several_dropouts_draw_in_the_order_of_the_text(self):
        @warpcall.fuse
        def f(x, y):
            first = warpcall.dropout(x, 0.5)
            return warpcall.dropout(y * 2, 0.25) - first
        x, y = np.ones((2, 4, 64), np.float32)
        expected = self.gpu.fused("dropout(x0 * 2, 0.25) - dropout(x1, 0.5)", y, x, seed=5)
        np.testing.assert_array_equal(self.gpu.fused(f, x, y, seed=5), expected)
        self.assertFalse(np.array_equal(self.gpu.fused(f, x, y, seed=6), expected))


# ---- calls --------------------------------------------------------------------------------------


X, B = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6), np.arange(6, dtype=np.float32)


class Counted:
    """A function that counts how often it ran: x * scale + b, as an expression."""

    def __init__(self):
        self.runs = 0

        @warpcall.fuse
        def f(x, b, scale=2.0):
            self.runs += 1
            return x * scale + b
        self.fused = f


class CallsTest(ServerTest):
    def setUp(self):
        self.counted = Counted()
        self.f = self.counted.fused
        self.expected = X * 2 + B

    def test_every_way_to_call(self):
        gpu, f = self.gpu, self.f
        for result in (gpu.fused(f, X, B), gpu.fused(X, B, expression=f), gpu.run("fused", X, B, expression=f),
                       gpu.submit("fused", X, B, expression=f).result(), gpu.fused(f, X, B, timeout=60, request_id="r"),
                       gpu.fused(f, X, B, implementation="manual", device="cpu"), gpu.fused(f, X.tolist(), B.tolist()),
                       gpu.fused(f, X.astype(np.float64), B, dtype="float32"),
                       gpu.fused(f, X[:, ::-1], B[::-1])[:, ::-1],
                       *gpu.map("fused", [(X, B)] * 2, expression=f, window=2)):
            np.testing.assert_array_equal(result, self.expected)
        self.assertEqual(gpu.fused(f, X, B, request_id="r").request_id, "r")
        self.assertEqual(gpu.fused(f, X, B, implementation="manual").implementation, "manual")
        out = np.empty_like(X)
        self.assertIs(gpu.fused(f, X, B, out=out).outputs[0], out)
        np.testing.assert_array_equal(out, self.expected)
        half = gpu.fused(f, X, B, dtype="float16")
        self.assertEqual((half.dtype_name, half.shape), ("float16", X.shape))
        self.assertEqual(self.counted.runs, 1)

    def test_once_for_each_number_of_inputs(self):
        three = np.full(6, 3, np.float32)
        for _ in range(3):
            np.testing.assert_array_equal(self.gpu.fused(self.f, X, B), self.expected)
            np.testing.assert_array_equal(self.gpu.fused(self.f, X, B, three), X * 3 + B)
            self.gpu.fused(self.f, X[0], B)  # another rank
            self.gpu.fused(self.f, X.astype(np.float16), B.astype(np.float16))
        self.assertEqual(self.counted.runs, 2)
        self.assertEqual(self.f.expression_for(2), "x0 * 2 + x1")
        self.assertEqual(self.f.expression_for(3), "x0 * x2 + x1")

    def test_once_for_all_threads(self):
        begun, release = threading.Event(), threading.Event()
        runs = []

        @warpcall.fuse
        def slow(x):
            runs.append(1)
            begun.set()
            release.wait(60)
            return x + 1
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            first = pool.submit(slow.expression_for, 1)
            begun.wait(60)
            others = [pool.submit(slow.expression_for, 1) for _ in range(3)]
            release.set()
            self.assertEqual({future.result() for future in (first, *others)}, {"x0 + 1"})
        self.assertEqual(len(runs), 1)

    def test_what_was_refused_is_tried_again(self):
        works = []

        @warpcall.fuse
        def f(x):
            return x + 1 if works else None
        with self.assertRaises(warpcall.InvalidArgument):
            self.gpu.fused(f, X)
        works.append(True)
        np.testing.assert_array_equal(self.gpu.fused(f, X), X + 1)

    def test_tensors_that_stay(self):
        with self.gpu.put(X) as x, self.gpu.put(B) as b:
            np.testing.assert_array_equal(self.gpu.fused(self.f, x, B), self.expected)
            kept = self.gpu.fused(self.f, x, b, keep=True, keep_ttl=60)
            self.assertTrue(kept.residents)
            again = self.gpu.fused(self.f, kept, b)
            np.testing.assert_array_equal(again, self.expected * 2 + B)
            self.assertIn("4x6*6", repr(self.f.describe(self.gpu, kept, b)))
            self.gpu.free(kept)

    def test_asyncio(self):
        async def calls():
            async with warpcall.aio.connect(self.server.address, timeout=60) as gpu:
                x = await gpu.put(X)
                kept = await gpu.fused(self.f, x, B, keep=True)
                results = [await gpu.fused(self.f, X, B), await gpu.run("fused", X, B, expression=self.f),
                           await kept.resident.get(), await gpu.fused(self.f, x, B),
                           await gpu.fused(self.f, X, B, dtype="float32")]
                results += [y async for y in gpu.map("fused", [(X, B)], expression=self.f)]
                same = await gpu.describe("fused", "4x6*6", expression=self.f)
                return results, await self.f.describe(gpu, X, B), same
        results, plan, same = asyncio.run(calls())
        for result in results:
            np.testing.assert_array_equal(result, self.expected)
        self.assertEqual(plan, same)
        self.assertEqual(self.counted.runs, 1)

    def test_describe(self):
        text = {"expression": "x0 * 2 + x1"}
        expected = self.gpu.describe("fused", "4x6*6", dtype="float16", implementation="manual", **text)
        half = [array.astype(np.float16) for array in (X, B)]
        self.assertEqual(self.f.describe(self.gpu, *half, implementation="manual"), expected)
        self.assertEqual(self.f.describe(self.gpu, X, B, dtype="float16", implementation="manual"), expected)
        result = self.gpu.fused(self.f, X, B)
        self.assertEqual(self.f.describe(self.gpu, result, B), self.gpu.describe("fused", "4x6*6", **text))
        self.assertEqual(self.f.describe(self.gpu, result, B, dtype="float16", implementation="manual"), expected)
        self.assertEqual(self.f.describe(self.gpu, 1.0, [2.0]), self.gpu.describe("fused", "1*1", **text))
        with self.assertRaisesRegex(warpcall.InvalidArgument, "input 1 is float16 and input 0 float32"):
            self.f.describe(self.gpu, X, half[1])
        with self.assertRaisesRegex(warpcall.InvalidArgument, "takes 2 to 3 inputs, got 0"):
            self.f.describe(self.gpu)

    def test_benchmark_and_profile(self):
        report = self.gpu.benchmark("fused", ["8*8", "8*8*8"], expression=self.f, iterations=1,
                                    implementations="reference")
        self.assertEqual([(row.problem, row.error) for row in report], [("8*8", ""), ("8*8*8", "")])
        self.assertEqual(self.gpu.profile("fused", "8*8", expression=self.f, iterations=1).kernel, "fused")

    def test_given_twice(self):
        with self.assertRaisesRegex(warpcall.InvalidArgument, r"given twice: <warpcall\.Fused f\(x, b, scale\)>, 'x0'"):
            self.gpu.fused(self.f, X, B, expression="x0")


if __name__ == "__main__":
    main()
