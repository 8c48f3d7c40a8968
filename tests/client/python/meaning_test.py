"""Inputs that the Python client refuses because they would lose their meaning on the way (masks, units, sparse arrays),
and uses of a result as an array: sums, copies, pickles. Without a server."""

import copy
import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
import unittest

from support import ENVIRONMENT, Messages, answer, main, np
import warpcall
from warpcall import BFloat16Bits, _arrays
from warpcall._arrays import to_operand
from warpcall._request import Options, Request
from warpcall._execute import Call
from warpcall._result import Finisher

VALUES = np.array([[1.5, -2.25, 0.0], [4, -8, 0.5]], np.float32)
BITS = _arrays._narrow(VALUES).view(BFloat16Bits)


class WithUnit(np.ndarray):
    """An array with a unit, like those of astropy and unyt."""

    def to_value(self, unit):
        return self.view(np.ndarray)


class OfPint:
    """An array like pint's, which has every attribute that NumPy asks for."""

    units, magnitude = "m", VALUES

    def __array__(self, dtype=None, copy=None):
        return self.magnitude

    def __getattr__(self, name):
        return getattr(self.magnitude, name)


class Named(np.ndarray):
    pass


class Sparse:
    def toarray(self):
        return VALUES


class MeaningTest(unittest.TestCase):
    def refusals(self):
        """(input that would lose its meaning, its class, replacement to pass)."""
        yield np.ma.masked_array(VALUES, VALUES < 0), "MaskedArray", "has a mask", ".filled(value)"
        yield np.ma.masked_array(VALUES), "MaskedArray", "has a mask", ".filled(value)"
        yield np.ma.masked, "MaskedConstant", "has a mask", ".filled(value)"
        yield VALUES.view(WithUnit), "WithUnit", "has a unit", ".to_value(unit)"
        yield OfPint(), "OfPint", "has a unit", ".magnitude"
        yield VALUES.view(Named), "Named", "is more than an array", ".view(numpy.ndarray)"
        yield Sparse(), "Sparse", "is sparse", ".toarray()"
        for module, make, name, meaning, way in [
                ("scipy", "__import__('scipy.sparse').sparse.csr_matrix(VALUES)", "csr_matrix", "is sparse",
                 ".toarray()"),
                ("sparse", "__import__('sparse').COO(VALUES)", "COO", "is sparse", ".todense()"),
                ("pint", "__import__('pint').UnitRegistry().Quantity(VALUES, 'm')", "Quantity", "has a unit",
                 ".magnitude"),
                ("astropy", "__import__('astropy.units').units.Quantity(VALUES, 'm')", "Quantity", "has a unit",
                 ".to_value(unit)"),
                ("unyt", "__import__('unyt').unyt_array(VALUES, 'm')", "unyt_array", "has a unit",
                 ".to_value(unit)")]:
            if importlib.util.find_spec(module) is not None:
                yield eval(make), name, meaning, way

    def test_what_would_lose_its_meaning_is_refused(self):
        for value, *mentioned in self.refusals():
            for given, dtype in ((value, None), (value, "bfloat16"), ([value], None), ((1.0, [value]), None)):
                with self.assertRaises(warpcall.InvalidArgument) as raised:
                    to_operand(given, dtype)
                for text in mentioned:
                    self.assertIn(text, raised.exception.message)

    def test_no_client_takes_it_in_a_call(self):
        # Before anything is sent: nobody listens.
        with warpcall.connect("unix:/nonexistent/s") as client:
            for value, *mentioned in self.refusals():
                for call in (lambda x: client.gelu(x), lambda x: client.submit("gelu", x),
                             lambda x: list(client.map("gelu", [x])),
                             lambda x: client.gelu(VALUES, out=x) if isinstance(x, np.ndarray) else client.gelu(x),
                             lambda x: next(warpcall.Blocks((2, 3), "f4", [x]).arrays())):
                    with self.assertRaises(warpcall.InvalidArgument) as raised:
                        call(value)
                    self.assertIn(mentioned[-1], raised.exception.message)

    def test_classes_that_say_no_more_are_taken(self):
        with tempfile.TemporaryDirectory() as folder:
            mapped = np.memmap(os.path.join(folder, "x"), np.float32, "w+", shape=(2, 3))
            mapped[:] = VALUES
            for value in (VALUES.view(np.matrix), VALUES.view(np.recarray), mapped, [VALUES[0], VALUES[1]]):
                np.testing.assert_array_equal(to_operand(value).data, VALUES)
            Request(Call("gelu"), [VALUES], Options(out=mapped), lambda device: None)
            del mapped

    def test_bits_in_a_list_are_not_taken_for_numbers(self):
        result = Finisher("gelu", lambda device: None)(answer_of_bits())
        for item in (BITS, result) if result.dtype == np.uint16 else (BITS,):
            with self.assertRaisesRegex(warpcall.InvalidArgument, "numpy.stack"):
                to_operand([item, item])

    def test_an_array_method_that_refuses_says_why(self):
        class Refusing:
            def __array__(self, dtype=None, copy=None):
                raise RuntimeError("use densify()")

        with self.assertRaisesRegex(warpcall.InvalidArgument, "type Refusing that gives no array: use densify"):
            to_operand(Refusing())


def answer_of_bits():
    response = Messages().ExecuteResponse(implementation="fake", device="cpu")
    response.outputs.add(data_type=3, shape=BITS.shape, data=BITS.tobytes())
    return response.SerializeToString()


class ResultTest(unittest.TestCase):
    def result(self, array=VALUES, data=None):
        finish = Finisher("gelu", lambda device: 48e6)
        timing, launch = {"kernel_ns": 2000, "total_ns": 5_000_000}, {"bytes_moved": 48, "flops": 9}
        return finish(data or answer(array, timing=timing, launch=launch, request_id="r-1"))

    def test_it_has_what_its_array_has(self):
        y = self.result()
        self.assertEqual(y.sum(), VALUES.sum())
        np.testing.assert_array_equal(y.T, VALUES.T)
        np.testing.assert_array_equal(y.astype(np.float64), VALUES)
        np.testing.assert_array_equal(y.reshape(-1).tolist(), VALUES.reshape(-1))
        np.testing.assert_array_equal(y.max(axis=0), VALUES.max(axis=0))
        self.assertEqual((np.mean(y), y.nbytes), (VALUES.mean(), VALUES.nbytes))
        np.testing.assert_array_equal(y @ VALUES.T, VALUES @ VALUES.T)
        np.testing.assert_array_equal(np.concatenate([y, y]), np.concatenate([VALUES, VALUES]))
        self.assertIs(type(y.T), np.ndarray)
        self.assertTrue(1.5 in y and 7 not in y)
        self.assertTrue({"sum", "T", "timing", "torch"} <= set(dir(y)))
        self.assertEqual(y.device, "cpu")  # its own, which newer arrays have too

    def test_what_no_array_has_it_has_not(self):
        y = self.result()
        for name in ("units", "_repr_html_", "__dlpack__", "__array_interface__", "numpyy"):
            self.assertFalse(hasattr(y, name), name)

    def test_it_is_true_as_its_array_is(self):
        number = Finisher("gelu", lambda device: None, is_scalar=True)(answer(np.zeros(1)))
        self.assertEqual((bool(number), int(number), complex(number)), (False, 0, 0j))
        with self.assertRaises(ValueError):
            bool(self.result())

    def test_it_is_written_as_its_array_is(self):
        y = self.result()
        with self.assertRaises(ValueError):
            y[0, 0] = 5
        with self.assertRaises(ValueError):
            y += 1
        z = copy.deepcopy(y)
        z[0, 0] = 5
        z += 1
        self.assertEqual((z[0, 0], y[0, 0]), (6, 1.5))

    def check_copy(self, copied, y):
        np.testing.assert_array_equal(copied, y)
        self.assertEqual((copied.kernel, copied.implementation, copied.device, copied.request_id, copied.stripes),
                         ("gelu", "fake", "cpu", "r-1", 1))
        self.assertEqual((copied.timing, copied.launch), (y.timing, y.launch))
        self.assertEqual((copied.achieved_bytes_per_second, copied.percent_of_ceiling),
                         (y.achieved_bytes_per_second, None))
        self.assertEqual(repr(copied), repr(y))

    def test_copies_and_pickles(self):
        y = self.result()
        for copied in (copy.deepcopy(y), copy.copy(y), pickle.loads(pickle.dumps(y)),
                       pickle.loads(pickle.dumps(copy.deepcopy(y), protocol=2))):
            self.check_copy(copied, y)
        self.assertFalse(np.shares_memory(copy.deepcopy(y).array, y.array))
        self.assertTrue(np.shares_memory(copy.copy(y).array, y.array))

    def test_a_pickle_needs_no_client_where_it_is_read(self):
        program = "import pickle, sys; y = pickle.load(sys.stdin.buffer); print(y.sum(), y.timing.kernel_ns)"
        done = subprocess.run([sys.executable, "-c", program], input=pickle.dumps(self.result()),
                              env=ENVIRONMENT, capture_output=True, timeout=60, check=False)
        self.assertEqual(done.stdout.decode(), f"{VALUES.sum()} 2000\n", done.stderr)

    # ---- bfloat16 ----

    def test_arithmetic_takes_the_values_of_bfloat16(self):
        for y in (self.result(data=answer_of_bits()), BITS):
            self.assertEqual((float(y.sum()), float(y.max()), int(y.argmin())), (VALUES.sum(), 4.0, 4))
            np.testing.assert_array_equal(np.asarray(y + 1, np.float32), VALUES + 1)
            np.testing.assert_array_equal(y.astype(np.float32), VALUES)
            np.testing.assert_array_equal(np.asarray(y < 0), VALUES < 0)
            np.testing.assert_array_equal(np.asarray(y == VALUES), VALUES == VALUES)
            bits = np.asarray(y).view(np.uint16)
            self.assertIs(type(bits), np.ndarray)
            np.testing.assert_array_equal(bits, BITS.view(np.uint16))
        z = pickle.loads(pickle.dumps(self.result(data=answer_of_bits())))
        self.assertEqual((z.dtype_name, float(z.sum())), ("bfloat16", VALUES.sum()))

    def test_bits_stay_bits_where_they_are_asked_for(self):
        plain = BITS.view(np.uint16)
        np.testing.assert_array_equal(BITS >> 8, plain >> 8)
        np.testing.assert_array_equal(BITS == plain, np.ones(plain.shape, bool))
        np.testing.assert_array_equal(BITS.astype(np.uint32), plain.astype(np.uint32))
        np.testing.assert_array_equal(to_operand(BITS).data, plain)
        with self.assertRaises(TypeError):
            np.add(plain, 1, out=BITS.copy())


if __name__ == "__main__":
    main()
