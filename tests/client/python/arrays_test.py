"""The arrays that the Python client takes and the results that it returns, without a server: types,
layouts, DLPack, bfloat16 with and without ml_dtypes."""

import ctypes
import importlib.util
import os
import pickle
import sys
import tempfile
import types
import unittest
from unittest import mock

from support import answer, main, np
import warpcall
from warpcall import BFloat16Bits, _arrays
from warpcall._arrays import to_operand, type_name
from warpcall._result import Finisher

FLOAT32, FLOAT16, BFLOAT16 = 1, 2, 3
VALUES = np.array([[1.5, -2.25, 0.0], [np.inf, -np.inf, 3e-3]], np.float32)


class OnlyDlpack:
    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, *args, **kwargs):
        return self.array.__dlpack__(*args, **kwargs)


class OnlyArray:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def widen(bits):
    return (np.asarray(bits).view(np.ndarray).astype(np.uint32) << 16).view(np.float32)


class InputsTest(unittest.TestCase):
    def assert_sent(self, operand, data_type, expected):
        self.assertEqual(operand.data_type, data_type)
        self.assertEqual(operand.shape, expected.shape)
        self.assertEqual(operand.data.tobytes(), np.ascontiguousarray(expected).tobytes())
        self.assertEqual(len(b"".join((b"", operand.data))), expected.nbytes)

    def test_what_is_ready_is_not_copied(self):
        for array in (VALUES, VALUES.astype(np.float16), VALUES[1:], np.empty((0, 3), np.float32)):
            operand = to_operand(array)
            self.assert_sent(operand, FLOAT32 if array.itemsize == 4 else FLOAT16, array)
            self.assertIs(operand.data, array)
        with tempfile.TemporaryDirectory() as folder:
            mapped = np.memmap(os.path.join(folder, "x"), np.float32, "w+", shape=(2, 3))
            mapped[:] = VALUES
            operand = to_operand(mapped)
            self.assert_sent(operand, FLOAT32, VALUES)
            self.assertTrue(np.shares_memory(operand.data, mapped))
            del operand, mapped

    def test_any_layout_and_byte_order(self):
        for array in (VALUES.T, VALUES[:, ::-1], VALUES[:, ::2], np.asfortranarray(VALUES),
                      np.broadcast_to(VALUES[:1], (4, 3)), VALUES.astype(">f4")):
            self.assert_sent(to_operand(array), FLOAT32, array.astype("<f4"))
        unaligned = np.frombuffer(b"x" + VALUES.tobytes(), np.float32, offset=1)
        self.assert_sent(to_operand(unaligned), FLOAT32, VALUES.reshape(-1))
        self.assert_sent(to_operand(VALUES.astype(">f2")), FLOAT16, VALUES.astype("<f2"))

    def test_numbers_and_lists_are_float32_or_what_dtype_says(self):
        self.assert_sent(to_operand([[1, 2], [3, 4]]), FLOAT32, np.array([[1, 2], [3, 4]], "f4"))
        self.assert_sent(to_operand([0.1], "float16"), FLOAT16, np.array([0.1], "f2"))
        scalar = to_operand(2.5)
        self.assertEqual((scalar.shape, scalar.is_scalar), ((1,), True))
        self.assertTrue(to_operand(np.float32(1)).is_scalar)
        self.assert_sent(to_operand(np.arange(3), "f32"), FLOAT32, np.arange(3, dtype="f4"))
        # 1 + 2^-11 + 2^-40 is above the middle of two float16, and the middle itself in float32.
        self.assert_sent(to_operand([1 + 2.0**-11 + 2.0**-40], np.float16), FLOAT16,
                         np.array([1 + 2.0**-10], "f2"))

    def test_other_arrays(self):
        self.assert_sent(to_operand(OnlyDlpack(VALUES)), FLOAT32, VALUES)
        self.assert_sent(to_operand(OnlyArray(VALUES)), FLOAT32, VALUES)
        self.assert_sent(to_operand((ctypes.c_float * 3)(1, 2, 3)), FLOAT32,
                         np.array([1, 2, 3], "f4"))
        self.assert_sent(to_operand(memoryview(VALUES)), FLOAT32, VALUES)
        result = Finisher("gelu", lambda device: None, None)(answer(VALUES))
        self.assert_sent(to_operand(result), FLOAT32, VALUES)

    def test_what_is_refused_says_what_and_what_to_do(self):
        for value, *mentioned in [
                (VALUES.astype(np.float64), "float64", "dtype"), (np.arange(3), "int64", "float32"),
                (OnlyDlpack(VALUES, (2, 1)), "device", ".get()"), ("text", "str"),
                (None, "NoneType"), ([[1], [1, 2]], "no array"), ([1j], "list"),
                (np.array(["a"]), "<U1")]:
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                to_operand(value)
            for text in mentioned:
                self.assertIn(text, str(raised.exception))
        for value in (np.array(["a"]), np.array([1j])):
            with self.assertRaises(warpcall.InvalidArgument):
                to_operand(value, "float32")
        for dtype in ("float64", np.int8, "nonsense", object()):
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                type_name(dtype)
            self.assertIn("bfloat16", str(raised.exception))


class BFloat16Test(unittest.TestCase):
    """Without ml_dtypes, and with it where it is installed."""

    def test_float32_is_rounded_to_nearest_even(self):
        bits = np.array([0x3F800000, 0x3F808000, 0x3F808001, 0x3F818000, 0x3F807FFF, 0x7F7FFFFF,
                         0x7F800000, 0xFF800001, 0x7FC00000, 0x00000001, 0x80000000], np.uint32)
        expected = [0x3F80, 0x3F80, 0x3F81, 0x3F82, 0x3F80, 0x7F80, 0x7F80, 0xFFC0, 0x7FC0, 0,
                    0x8000]
        operand = to_operand(bits.view(np.float32), "bfloat16")
        self.assertEqual((operand.data_type, operand.data.tolist()), (BFLOAT16, expected))

    def assert_rounded_once(self, dtype, bits):
        """Checks values at, and 2**-bits beside, the middle between two of the result's type."""
        one = np.ones(1, dtype)
        for name, half, up in (("bfloat16", 8, 0x3F81), ("float16", 11, 0x3C01)):
            ulp, tiny = np.ldexp(one[0], 1 - half), np.ldexp(one[0], -bits)
            middle = 1 + ulp / 2
            values = np.array([middle - tiny, middle, middle + tiny, middle + ulp - tiny, middle + ulp], dtype)
            expected = np.array([up - 1, up - 1, up, up, up + 1], np.uint16)
            for sign, minus in ((1, 0), (-1, 0x8000)):
                sent = to_operand(sign * values, name).data.view(np.uint16)
                np.testing.assert_array_equal(sent, expected | minus, f"{values.dtype} {name}")

    def test_wider_types_are_rounded_once(self):
        for dtype in (np.float64, np.longdouble):
            with self.subTest(dtype=dtype):
                self.assert_rounded_once(dtype, np.finfo(dtype).nmant)
        # Passes arrays in another order of bytes and of elements, numbers, and lists.
        value = 1 + 2**-8 + 2**-30
        for given in (np.full((2, 3), value, ">f8"), np.full((2, 3), value).T, np.full((2, 6), value)[:, ::2],
                      np.float64(value), value, [value, value]):
            self.assertEqual(set(to_operand(given, "bfloat16").data.ravel()), {0x3F81})

    def test_what_leaves_the_range_of_bfloat16(self):
        largest, least = (2 - 2.0**-7) * 2.0**127, 2.0**-133
        with np.errstate(over="ignore"):
            values = np.array([largest, largest + 2.0**118, largest + 2.0**119, 1e300, np.inf, np.nan,
                               least / 2, least / 2 * (1 + 2**-50), 1e-300, -1e-300, 0.0])
            bits = to_operand(values, "bfloat16").data
        np.testing.assert_array_equal(bits[[0, 1, 2, 3, 4, 6, 7, 8, 9, 10]],
                                      [0x7F7F, 0x7F7F, 0x7F80, 0x7F80, 0x7F80, 0, 1, 0, 0x8000, 0])
        self.assertTrue(np.isnan(widen(bits)[5]))

    def test_whole_numbers_are_rounded_once(self):
        for exponent, dtypes in ((30, (np.int32, np.uint32, np.int64, np.uint64)), (62, (np.int64, np.uint64)),
                                 (63, (np.uint64,))):
            middle = (1 << exponent) + (1 << (exponent - 8))
            for dtype in dtypes:
                with self.subTest(exponent=exponent, dtype=dtype):
                    one = (127 + exponent) << 7
                    for value, bits in ((middle - 1, one), (middle, one), (middle + 1, one + 1)):
                        self.assertEqual(to_operand(np.array([value], dtype), "bfloat16").data, [bits])
                        self.assertEqual(to_operand([value], "bfloat16").data, [bits])
                        if np.dtype(dtype).kind == "i":
                            self.assertEqual(to_operand(np.array([-value], dtype), "bfloat16").data, [bits | 0x8000])
        for dtype in (np.int64, np.uint64):  # small ones as they are
            small = np.arange(256, dtype=dtype)
            np.testing.assert_array_equal(widen(to_operand(small, "bfloat16").data), small)
        np.testing.assert_array_equal(widen(to_operand([np.uint16(5), True], "bfloat16").data), [5, 1])

    def test_bits_go_in_and_come_out_as_uint16(self):
        bits = np.array([[0x3F80, 0x4000]], np.uint16)
        self.assertEqual(to_operand(bits, "bfloat16").data.tolist(), bits.tolist())
        with self.assertRaises(warpcall.InvalidArgument):
            to_operand(bits)
        data = b"ab" + bits.tobytes()
        with mock.patch.object(_arrays, "ml_dtypes", None):
            array = _arrays.from_bytes(data, (2, 6), BFLOAT16, (1, 2))
        self.assertEqual((array.dtype, array.dtype_name, array.tolist()),
                         (np.uint16, "bfloat16", bits.tolist()))
        self.assertIsInstance(array, BFloat16Bits)
        for again in (array, array[:, 1:], array.copy("F").T):  # needs no dtype
            operand = to_operand(again)
            self.assertEqual((operand.data_type, operand.data.tolist()), (3, again.tolist()))
        self.assertEqual(to_operand(array, "float32").data.tolist(), [[1.0, 2.0]])

    def test_bits_in_another_order_of_bytes_are_turned(self):
        bits = np.array([0x3F80, 0x4000], np.uint16)
        operand = to_operand(bits.astype(">u2"), "bfloat16")
        self.assertEqual(operand.data.tobytes(), bits.astype("<u2").tobytes())
        out = np.zeros(2, ">u2")
        _arrays.copy_into(out, bits.view(BFloat16Bits))
        self.assertEqual(out.tolist(), bits.tolist())

    def test_a_number_has_no_dimensions(self):
        for value in (1.0, np.float32(1)):
            operand = to_operand(value, "bfloat16")
            self.assertEqual((operand.shape, operand.is_scalar), ((1,), True))

    def test_with_ml_dtypes(self):
        if importlib.util.find_spec("ml_dtypes") is None:
            self.skipTest("ml_dtypes is not installed")
        import ml_dtypes
        array = VALUES.astype(ml_dtypes.bfloat16)
        for given in (array, array.T, array[:, ::2]):
            operand = to_operand(given)
            self.assertEqual((operand.data_type, operand.data.tobytes()), (3, given.tobytes()))
        self.assertEqual(to_operand(array, "float32").data.tolist(),
                         array.astype(np.float32).tolist())
        self.assertEqual(to_operand(VALUES, ml_dtypes.bfloat16).data.tobytes(), array.tobytes())
        back = _arrays.from_bytes(array.tobytes(), (0, array.nbytes), BFLOAT16, array.shape)
        self.assertEqual((back.dtype, back.tolist()), (ml_dtypes.bfloat16, array.tolist()))

    def test_torch_by_its_bits(self):
        """A stand-in with the used parts of a torch tensor: torch itself is not installed here."""
        class Tensor:
            __module__ = "torch"
            dtype, device = "torch.bfloat16", types.SimpleNamespace(type="cpu")

            def __init__(self, bits):
                self.bits = bits

            def detach(self):
                return self

            contiguous = detach

            def view(self, dtype):
                return types.SimpleNamespace(numpy=lambda: self.bits.view(dtype))

        bits = np.array([0x3F80, 0xBF80], np.uint16)
        with mock.patch.dict(sys.modules, {"torch": types.SimpleNamespace(int16=np.int16)}):
            operand = to_operand(Tensor(bits))
            self.assertEqual((operand.data_type, operand.data.tolist()), (3, bits.tolist()))
            tensor = Tensor(bits)
            tensor.device = types.SimpleNamespace(type="cuda")
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                to_operand(tensor)
            self.assertIn(".cpu()", str(raised.exception))


class ResultTest(unittest.TestCase):
    def result(self, array=VALUES, out=None, scalar=False, **fields):
        timing, launch = {"kernel_ns": 2000, "total_ns": 5_000_000}, {"bytes_moved": 48, "flops": 9}
        finish = Finisher("gelu", lambda device: 48e6, scalar)
        return finish(answer(array, timing=timing, launch=launch, request_id="r-1", **fields),
                      lambda shape: out)

    def test_it_can_be_used_as_an_array(self):
        y = self.result()
        np.testing.assert_array_equal(np.asarray(y), VALUES)
        self.assertEqual((y.shape, y.ndim, y.size, y.dtype, len(y)), ((2, 3), 2, 6, np.float32, 2))
        self.assertFalse(np.asarray(y).flags.writeable)
        np.testing.assert_array_equal(y[0, :2] + 1, VALUES[0, :2] + 1)
        np.testing.assert_array_equal(np.exp(-y), np.exp(-VALUES))
        np.testing.assert_array_equal(y == VALUES, np.ones((2, 3), bool))
        self.assertEqual([row.tolist() for row in y], VALUES.tolist())
        self.assertEqual(np.asarray(y, np.float64).dtype, np.float64)
        self.assertTrue(np.array(y).flags.writeable)
        self.assertEqual(float(self.result(np.array([2.5]), scalar=True)), 2.5)
        self.assertEqual(self.result(np.array([2.5]), scalar=True).shape, ())

    def test_it_says_what_ran_and_how_fast(self):
        y = self.result()
        self.assertEqual((y.implementation, y.device, y.request_id), ("fake", "cpu", "r-1"))
        self.assertEqual((y.timing.kernel_ns, y.timing.queue_ns, y.launch.flops), (2000, 0, 9))
        self.assertAlmostEqual(y.achieved_bytes_per_second, 24e6)
        self.assertAlmostEqual(y.achieved_flops_per_second, 4.5e6)
        self.assertAlmostEqual(y.percent_of_ceiling, 50)
        self.assertEqual(repr(y), "<warpcall.Result gelu -> float32[2,3] by fake on cpu: kernel"
                                  " 2.00 µs (24.0 MB/s, 4.50 MFLOP/s), server 5.00 ms>")

    def test_out_is_written_or_refused(self):
        out = np.empty((3, 2), np.float32).T
        y = self.result(out=out)
        self.assertIs(y.outputs[0], out)
        np.testing.assert_array_equal(out, VALUES)
        frozen = np.empty_like(VALUES)
        frozen.flags.writeable = False
        for wrong in (np.empty((2, 2), np.float32), np.empty((2, 3), np.float64), frozen):
            with self.assertRaises(warpcall.InvalidArgument) as raised:
                self.result(out=wrong)
            self.assertIn("out is", str(raised.exception))

    def test_out_of_a_number_has_no_dimensions_either(self):
        out = np.zeros((), np.float32)
        self.result(np.array([2.5]), out=out, scalar=True)
        self.assertEqual(out[()], 2.5)
        with self.assertRaises(warpcall.InvalidArgument):
            self.result(np.array([2.5]), out=out)

    def test_an_answer_that_contradicts_itself(self):
        for data in (b"", b"\x0a\x05abc", answer(VALUES)[:-1]):
            with self.assertRaises(warpcall.Internal):
                Finisher("gelu", lambda device: None)(data)


class ErrorsTest(unittest.TestCase):
    def test_they_are_what_python_calls_them(self):
        for cls, base in [(warpcall.InvalidArgument, ValueError), (warpcall.NotFound, LookupError),
                          (warpcall.DeadlineExceeded, TimeoutError),
                          (warpcall.Unavailable, ConnectionError), (warpcall.Internal, Exception)]:
            error = cls("axis is 7")
            self.assertTrue(issubclass(cls, base) and issubclass(cls, warpcall.Error))
            self.assertEqual(str(error), f"{error.code}: axis is 7")
            self.assertEqual(error.message, "axis is 7")

    def test_they_survive_a_pickle(self):
        full = warpcall.ResourceExhausted("full", retry_after=0.5, request_id="warpcall-7")
        error = pickle.loads(pickle.dumps(full))
        self.assertEqual((type(error), error.code, error.message, error.retry_after, error.request_id),
                         (warpcall.ResourceExhausted, "RESOURCE_EXHAUSTED", "full", 0.5, "warpcall-7"))
        for after in None, -1.0, 0.5:
            error = warpcall.Unavailable("drains", retry_after=after)
            copy = pickle.loads(pickle.dumps(error))
            self.assertEqual(copy.retryable, after != -1.0)
            self.assertEqual((copy.retryable, copy.retry_after), (error.retryable, error.retry_after))


if __name__ == "__main__":
    main()
