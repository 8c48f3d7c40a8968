"""The wire format that the Python client writes by hand, against protobuf's: random messages both
ways, in every encoding that protobuf allows, and bytes that are none."""

import dataclasses
import pathlib
import random
import struct
import subprocess
import sys
import unittest

from support import SEED, Messages, main, np
from warpcall import _arrays, _execute, _inspect, _messages, _proto, _wire
from warpcall import Blocks, Resident
from warpcall._arrays import to_operand
from warpcall.errors import InvalidArgument

MESSAGES = 400
TEXTS = ["", "x", "gelu", "é☃𝄞", "a" * 200]
INTEGERS = [0, 1, -1, 127, 128, 300, (1 << 31) - 1, -(1 << 31), (1 << 63) - 1, -(1 << 63)]
DOUBLES = [0.0, 1.0, -2.5, 1e300, float("inf"), 5e-324]
# All messages that are encoded and decoded by their fields.
OURS = [each for each in vars(_proto).values() if dataclasses.is_dataclass(each)]
ANSWERS = [each for each in OURS if not each.__name__.endswith("Request")]
THEIRS = Messages()
RESIDENT = Resident(None, "", _proto.TensorInfo("abc", data_type="float32", shape=(3,)))


def random_value(field, rng):
    """Random value for a protobuf field that is not a message."""
    kinds = field.CPPTYPE_STRING, field.CPPTYPE_DOUBLE, field.CPPTYPE_BOOL
    if field.cpp_type == kinds[0]:
        text = rng.choice(TEXTS)
        return text if field.type == field.TYPE_STRING else text.encode()
    if field.cpp_type == kinds[1]:
        return rng.choice(DOUBLES)
    if field.cpp_type == kinds[2]:
        return rng.random() < 0.5
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.randrange(1, 4) if field.enum_type.name == "DataType" else rng.randrange(3)
    if field.cpp_type == field.CPPTYPE_UINT64:
        return abs(rng.choice(INTEGERS))
    values = [value for value in INTEGERS if abs(value) < 1 << 31]
    return rng.choice(INTEGERS if field.cpp_type == field.CPPTYPE_INT64 else values)


def is_repeated(field):
    if hasattr(field, "is_repeated"):  # protobuf 6.31 and later, which drops the other
        return field.is_repeated
    return field.label == field.LABEL_REPEATED


def fill(message, rng):
    """Random fields for a message of protobuf's."""
    fields = [field for field in message.DESCRIPTOR.fields if rng.random() < 0.7]
    for field in fields:
        count = rng.randrange(4) if is_repeated(field) else 1
        for _ in range(count):
            if field.cpp_type != field.CPPTYPE_MESSAGE:
                value = random_value(field, rng)
                if is_repeated(field):
                    getattr(message, field.name).append(value)
                else:
                    setattr(message, field.name, value)
            elif field.message_type.GetOptions().map_entry:
                key, value = field.message_type.fields
                key = random_value(key, rng)
                if value.cpp_type == value.CPPTYPE_MESSAGE:
                    fill(getattr(message, field.name)[key], rng)
                else:
                    getattr(message, field.name)[key] = random_value(value, rng)
            elif is_repeated(field):
                fill(getattr(message, field.name).add(), rng)
            else:
                getattr(message, field.name).SetInParent()
                fill(getattr(message, field.name), rng)
    return message


def shuffled(data, rng):
    """Another encoding of the same message: fields in another order, and unknown ones between."""
    groups = {}
    at = 0
    for number, _, _, stop in _wire.fields(data, 0, len(data)):
        groups.setdefault(number, []).append(data[at:stop])
        at = stop
    numbers = list(groups)
    rng.shuffle(numbers)
    unknown = [b"", _wire.varint_field(1000, 5), _wire.bytes_field(1001, b"later"),
               _wire.double_field(1002, 1.5), b"\xfd\x3e\x01\x02\x03\x04",
               b"\x9b\x3f\x08\x01\x9c\x3f"]  # a fixed32, and a group with a varint
    return b"".join(rng.choice(unknown) + b"".join(groups[number]) for number in numbers)


def value_of(attribute):
    """The value of protobuf's Attribute; None if it has none."""
    which = attribute.WhichOneof("value")
    return getattr(attribute, which) if which else None


def assert_same(test, ours, theirs):
    """A message of ours against protobuf's."""
    for name, field in _messages.fields_of(type(ours)).items():
        mine, other = getattr(ours, name), getattr(theirs, name)
        if field.kind == "attribute":
            test.assertEqual(mine, value_of(other))
        elif field.kind == "attributes":
            test.assertEqual(mine, {key: value_of(value) for key, value in other.items()})
        elif isinstance(field.kind, _wire.Enum):
            given = list(other) if field.repeated else [other]
            names = [field.kind.get(number, str(number)) for number in given]
            if given != [0] or 0 in field.kind:
                test.assertEqual(list(mine) if field.repeated else [mine], names, name)
        elif field.kind == "texts":
            test.assertEqual(mine, dict(other))
        elif isinstance(field.kind, type):
            pairs = [(mine, other)]
            if field.repeated:
                test.assertEqual(len(mine), len(other), name)
                pairs = list(zip(mine, other))
            for pair in pairs:
                assert_same(test, *pair)
        else:
            test.assertEqual(list(mine) if field.repeated else mine,
                             list(other) if field.repeated else other, name)


class WireTest(unittest.TestCase):
    def setUp(self):
        self.rng = random.Random(SEED)

    # ---- protobuf writes, we read ----

    def test_every_field_of_the_proto_is_known(self):
        for cls in OURS:
            theirs = getattr(THEIRS, cls.__name__).DESCRIPTOR.fields
            self.assertEqual({(field.number, name, field.repeated)
                              for name, field in _messages.fields_of(cls).items()},
                             {(field.number, field.name, is_repeated(field) and not (
                                 field.message_type and field.message_type.GetOptions().map_entry))
                              for field in theirs}, cls.__name__)

    def test_the_messages_are_those_of_the_proto(self):
        """Compares with generate_messages.py's output; installed packages lack the generator."""
        generator = pathlib.Path(__file__).parents[3] / "client/python/generate_messages.py"
        done = subprocess.run([sys.executable, generator, "--check"], check=False, text=True,
                              stderr=subprocess.PIPE)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_small_messages_of_protobuf_are_read_in_any_encoding(self):
        for cls in ANSWERS:
            for _ in range(MESSAGES // 4):
                theirs = fill(getattr(THEIRS, cls.__name__)(), self.rng)
                data = theirs.SerializeToString()
                for encoding in (data, shuffled(data, self.rng)):
                    assert_same(self, _messages.decode(cls, encoding), theirs)

    def test_a_message_given_twice_is_merged(self):
        first = THEIRS.ExecuteResponse(timing={"queue_ns": 5, "kernel_ns": 7}, device="a")
        second = THEIRS.ExecuteResponse(timing={"kernel_ns": 9}, launch={"flops": 3}, device="b")
        response = _execute.Response(first.SerializeToString() + second.SerializeToString())
        self.assertEqual((response.timing().queue_ns, response.timing().kernel_ns), (5, 9))
        self.assertEqual((response.device, response.launch().flops), ("b", 3))

    def test_answers_are_read_in_place(self):
        numpy_rng = np.random.default_rng(SEED)
        for _ in range(MESSAGES):
            theirs = fill(THEIRS.ExecuteResponse(), self.rng)
            del theirs.outputs[:]
            arrays = []
            for _ in range(self.rng.randrange(3)):
                shape = [self.rng.randrange(4) for _ in range(self.rng.randrange(1, 5))]
                arrays.append(numpy_rng.standard_normal(shape, dtype=np.float32))
                theirs.outputs.add(data_type=1, shape=shape, data=arrays[-1].tobytes())
            data = theirs.SerializeToString()
            # Tensors last, as a server of ours sends them; or anywhere.
            data = self.rng.choice([self.tensors_last(theirs), shuffled(data, self.rng)])
            _execute.read_answer(data)  # the bytes before the data are cached
            answer, outputs = _execute.read_answer(data)
            ours = self.response(answer)
            for name in ("implementation", "device", "request_id", "resident_bytes"):
                self.assertEqual(getattr(ours, name), getattr(theirs, name))
            assert_same(self, ours.timing(), theirs.timing)
            assert_same(self, ours.launch(), theirs.launch)
            whole = np.frombuffer(data, np.uint8)
            self.assertEqual(len(outputs), len(arrays))
            for mine, expected in zip(outputs, arrays):
                np.testing.assert_array_equal(mine, expected)
                self.assertEqual(mine.shape, expected.shape)
                if mine.size:
                    self.assertTrue(np.shares_memory(mine, whole), "it was copied")

    @staticmethod
    def response(answer):
        return answer[0](*answer[1:]) if isinstance(answer, tuple) else answer

    @staticmethod
    def tensors_last(message):
        rest = type(message).FromString(message.SerializeToString())
        del rest.outputs[:]
        tensors = type(message)(outputs=message.outputs)
        return rest.SerializeToString() + tensors.SerializeToString()

    def test_tensors_of_one_length_and_different_shapes(self):
        for _ in range(3):  # the bytes before the data are cached by length
            for data_type, shape in ((1, (2, 3)), (1, (3, 2)), (2, (4, 3)), (1, (6, 1)),
                                     (3, (3, 4))):
                reply = THEIRS.ExecuteResponse(outputs=[
                    dict(data_type=data_type, shape=shape, data=bytes(range(24)))])
                view = _execute.Response(reply.SerializeToString()).tensors[0]
                self.assertEqual((view.data_type, view.shape), (data_type, shape))
                (array,) = _execute.read_answer(reply.SerializeToString())[1]
                self.assertEqual((array.shape, array.tobytes()), (shape, bytes(range(24))))
                self.assertEqual(_arrays.array_type_name(array), _proto.DATA_TYPES[data_type])

    def test_what_looks_like_a_known_tensor_is_taken_apart(self):
        known = THEIRS.ExecuteResponse(outputs=[dict(data_type=1, shape=[3], data=bytes(12))])
        tail = known.SerializeToString()
        _execute.read_answer(tail)
        for before in (b"\x32" + bytes([len(tail)]),  # it is the text of a request_id
                       b"\x0a\x00",                   # it is the second one
                       b"\x08\x0a"):                  # after a field of a later version
            data = before + tail
            theirs = THEIRS.ExecuteResponse.FromString(data)
            try:
                outputs = _execute.read_answer(data)[1]
            except ValueError:
                self.assertEqual(theirs.outputs[0].data, b"")  # it has no data type
            else:
                self.assertEqual([a.shape for a in outputs], [tuple(t.shape) for t in theirs.outputs])

    def test_an_unpacked_shape_is_read(self):
        tensor = _wire.varint_field(2, 2) + _wire.bytes_field(2, b"\x03") \
            + _wire.varint_field(1, 1) + _wire.bytes_field(3, bytes(24))
        response = _execute.Response(_wire.bytes_field(1, tensor))
        self.assertEqual(response.arrays()[0].shape, (2, 3))

    # ---- we write, protobuf reads ----

    def test_requests_are_what_protobuf_makes_of_them(self):
        numpy_rng = np.random.default_rng(SEED)
        for _ in range(MESSAGES):
            attributes = {self.rng.choice(TEXTS): self.rng.choice(
                [True, False, *INTEGERS, *DOUBLES, *TEXTS]) for _ in range(self.rng.randrange(3))}
            call = _execute.Call(*(self.rng.choice(TEXTS) for _ in range(4)), attributes)
            arrays = [numpy_rng.standard_normal([self.rng.randrange(200) for _ in range(
                self.rng.randrange(1, 3))]).astype(self.rng.choice(["f4", "f2"]))
                      for _ in range(self.rng.randrange(3))]
            inputs = [to_operand(array) for array in arrays]
            keep_ttl_ns = self.rng.choice([None, 0, 1 << 60])
            data = _execute.encode_request(call._replace(keep_ttl_ns=keep_ttl_ns), [*inputs, RESIDENT])
            theirs = THEIRS.ExecuteRequest.FromString(data)
            expected = THEIRS.ExecuteRequest(
                kernel=call.kernel, implementation=call.implementation, device=call.device,
                request_id=call.request_id, keep_outputs=keep_ttl_ns is not None,
                keep_ttl_ns=keep_ttl_ns or 0)
            for array in arrays:
                expected.inputs.add(data_type={4: 1, 2: 2}[array.itemsize], shape=array.shape,
                                    data=array.tobytes())
            expected.inputs.add(handle=RESIDENT.handle)
            for name, value in attributes.items():
                field = {bool: "bool", int: "int", float: "double", str: "string"}[type(value)]
                setattr(expected.attributes[name], field + "_value", value)
            self.assertEqual(theirs, expected)

    def test_stream_messages(self):
        call = _execute.Call("gelu", "cpu", "", "7", {"approximate": "none"})
        header = THEIRS.ExecuteStreamRequest.FromString(_execute.stream_header(
            _execute.encode_header(call, [Blocks((300, 500), "f2", []), RESIDENT,
                                          Blocks((0,), "bf16", [])]))).header
        self.assertEqual([(t.data_type, list(t.shape), t.data, t.handle) for t in header.inputs],
                         [(2, [300, 500], b"", ""), (0, [], b"", "abc"), (3, [0], b"", "")])
        self.assertEqual(header.attributes["approximate"].string_value, "none")
        for index, offset, data in [(0, 0, b"abc"), (3, 1 << 40, bytes(300)), (1, 7, b"")]:
            message = THEIRS.ExecuteStreamRequest.FromString(
                _execute.stream_chunk(index, offset, memoryview(data)))
            chunk = message.chunk
            self.assertEqual((chunk.input_index, chunk.offset, chunk.data), (index, offset, data))
            reply = THEIRS.ExecuteStreamResponse(chunk=chunk).SerializeToString()
            kind, at, end = _execute.split_stream_response(reply)
            mine = _execute.parse_chunk(reply, at, end)
            self.assertEqual((kind, mine.number, mine.offset), (2, index, offset))
            self.assertEqual(reply[mine.span[0]:mine.span[1]], data)

    def test_small_messages_are_written(self):
        for cls in (_proto.TensorSpec, _proto.Timing, _proto.LaunchInfo, _proto.DeviceInfo,
                    _proto.PutHeader, _proto.GetRequest, _proto.FreeRequest):
            for _ in range(MESSAGES // 4):
                theirs = fill(getattr(THEIRS, cls.__name__)(), self.rng)
                if cls is _proto.PutHeader:
                    theirs.tensor.CopyFrom(THEIRS.Tensor(data_type=3, shape=theirs.tensor.shape))
                if cls is _proto.TensorSpec:
                    theirs.data_type = 1 + theirs.data_type % 3
                ours = _messages.decode(cls, theirs.SerializeToString())
                self.assertEqual(type(theirs).FromString(_messages.encode(ours)), theirs)

    def test_benchmark_and_profile_are_asked_for(self):
        problem = _inspect.parse_problem("matmul", "64x32*32x16", "bfloat16")
        call = _execute.Call("matmul", "cpu", "cpu", "", {"transpose_a": True})
        benchmark = THEIRS.BenchmarkRequest.FromString(
            _inspect.encode_benchmark(problem, call, ["cpu", "manual"],
                                      _inspect.Sampling(3, 7, (1 << 64) - 1, 0.005, 1.5)))
        inputs = [dict(data_type=3, shape=[64, 32]), dict(data_type=3, shape=[32, 16])]
        attributes = {"transpose_a": THEIRS.Attribute(bool_value=True)}
        self.assertEqual(benchmark, THEIRS.BenchmarkRequest(
            kernel="matmul", implementations=["cpu", "manual"], inputs=inputs, device="cpu",
            attributes=attributes, warmup_iterations=3, iterations=7, seed=(1 << 64) - 1,
            max_noise=0.005, timeout_ns=1_500_000_000))
        for trace in (True, False):
            options = _inspect.ProfileOptions(5, trace, 9, not trace)
            profile = THEIRS.ProfileRequest.FromString(
                _inspect.encode_profile(problem, call, options))
            self.assertEqual(profile, THEIRS.ProfileRequest(
                request=dict(kernel="matmul", implementation="cpu", device="cpu",
                             attributes=attributes), iterations=5, trace=trace,
                input_specs=inputs, seed=9, request_path=not trace))

    def test_a_description_is_asked_for(self):
        problem = _inspect.parse_problem("softmax", "64x32", "float16")
        call = _execute.Call("softmax", "manual", "cpu", "", {"axis": 0})
        self.assertEqual(
            THEIRS.DescribeRequest.FromString(_inspect.encode_describe(problem, call)),
            THEIRS.DescribeRequest(kernel="softmax", implementation="manual", device="cpu",
                                   inputs=[dict(data_type=2, shape=[64, 32])],
                                   attributes={"axis": THEIRS.Attribute(int_value=0)}))

    # ---- bytes that are no message ----

    def test_an_attribute_that_cannot_be_sent(self):
        for value in (1 << 63, -(1 << 63) - 1, None, [1], 1j):
            with self.assertRaises(InvalidArgument) as raised:
                _messages.encode_attribute("axis", value)
            self.assertIn("axis", str(raised.exception))
        self.assertEqual(_messages.encode_attribute("a", np.int32(-1)),
                         _messages.encode_attribute("a", -1))
        self.assertEqual(_messages.encode_attribute("a", np.bool_(True)),
                         _messages.encode_attribute("a", True))

    def test_broken_bytes_raise_and_nothing_else(self):
        for _ in range(20 * MESSAGES):
            theirs = fill(THEIRS.ExecuteResponse(), self.rng)
            data = bytearray(theirs.SerializeToString())
            for _ in range(self.rng.randrange(1, 4)):
                if data:
                    data[self.rng.randrange(len(data))] = self.rng.randrange(256)
            data = bytes(data[:self.rng.randrange(len(data) + 1)])
            try:
                response = self.response(_execute.read_answer(data)[0])
                response.timing(), response.launch(), response.device
            except ValueError:  # WireError is one
                pass

    def test_lengths_that_do_not_fit(self):
        for tensor in (dict(shape=[2, 3], data=bytes(23)), dict(shape=[-1], data=b""),
                       dict(shape=[1 << 62, 4], data=b""), dict(data_type=9, data=b"")):
            message = THEIRS.ExecuteResponse()
            message.outputs.add(**{"data_type": 1, **tensor})
            with self.assertRaises(ValueError):
                _execute.read_answer(message.SerializeToString())
        data = THEIRS.ExecuteResponse(device="cuda:0").SerializeToString()
        for end in range(1, len(data)):
            with self.assertRaises(_wire.WireError, msg=data[:end]):
                _execute.read_answer(data[:end])
        for data in (b"\x0a\x05abc", b"\x0b", b"\x0b\x14", b"\x80", b"\xff" * 11, b"\x00\x00",
                     b"\x0f", struct.pack("<B3s", 0x09, b"abc")):
            with self.assertRaises(_wire.WireError, msg=data):
                list(_wire.fields(data, 0, len(data)))


if __name__ == "__main__":
    main()
