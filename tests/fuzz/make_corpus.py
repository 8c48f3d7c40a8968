#!/usr/bin/env python3
"""Writes the inputs from which the fuzzers start: right ones, or nearly right ones, of every kind
that a target distinguishes, and those of tests/fuzz/corpus, which once went wrong.

    make_corpus.py FOLDER       writes FOLDER/TARGET/made_*, and copies the others beside them
"""

import hashlib
import json
import pathlib
import shutil
import struct
import sys

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


# ---- protobuf's encoding ------------------------------------------------------------------------

def varint(value):
    value &= (1 << 64) - 1
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(data_type, shape, data=b""):
    return field(1, data_type) + field(2, b"".join(map(varint, shape))) + field(3, data)


def attribute(name, value):
    return field(1, name) + field(2, value)


DATA = struct.pack("<4f", 1, -2, 0.5, 3)
HALVES = struct.pack("<2e", 1, -2)
REQUEST = (field(1, "gelu") + field(2, "cpu") + field(3, tensor(1, [2, 2], DATA))
           + field(4, attribute("approximate", field(4, "none"))) + field(6, "id"))
LAUNCH = field(1, 32) + field(2, 40) + field(3, 0.5) + field(4, 1.0) + field(5, 1)
TIMING = b"".join(field(i, 100 * i) for i in range(1, 7))
RESPONSE = (field(1, tensor(1, [2, 2], DATA)) + field(2, "simd_fused") + field(3, "cpu")
            + field(4, TIMING) + field(5, LAUNCH) + field(6, "id"))
ROW = field(1, "simd_fused") + field(2, "cpu") + field(3, "cpu") + field(5, bytes([1, 2, 3]))
KERNEL = (field(1, "gelu") + field(3, "x") + field(4, field(1, "approximate")
          + field(3, field(4, "tanh")) + field(4, "none")) + field(5, ROW))
DEVICE = field(1, "cpu") + field(2, "cpu") + field(4, 1 << 30) + field(9, 1) + field(10, 1e9)
BENCHMARK = field(1, field(1, "float64") + field(3, 1.5) + field(11, LAUNCH)) + field(2, "cpu")
PROFILE = field(1, field(1, "k") + field(2, 3) + field(5, 0.5) + field(8, "1x1")) + field(2, b"[]")


# ---- targets ------------------------------------------------------------------------------------

def requests():
    yield "one_piece", bytes([0]) + REQUEST
    yield "splinters", bytes([3]) + REQUEST
    yield "matmul", bytes([1]) + field(1, "matmul") + 2 * field(3, tensor(2, [1, 2], HALVES))
    yield "twice", bytes([2]) + field(3, tensor(1, [4]) + field(3, DATA)) + field(1, "identity")
    yield "group", bytes([5]) + varint(3 << 3 | 3) + field(1, 1) + varint(3 << 3 | 4) + REQUEST


def infer_input(name, datatype, shape, *more):
    return field(1, name) + field(2, datatype) + field(3, b"".join(map(varint, shape))) + b"".join(more)


def infer_requests():
    raw = field(5, infer_input("x", "FP32", [2, 2])) + field(7, DATA)
    whole = (field(1, "gelu_fp32") + field(2, "1") + field(3, "id")
             + field(4, attribute("approximate", field(3, "none"))) + raw + field(6, field(1, "y")))
    yield "one_piece", bytes([0]) + whole
    yield "splinters", bytes([3]) + whole
    yield "raw_first", bytes([1]) + field(7, HALVES) + field(1, "matmul") + field(7, HALVES) \
        + 2 * field(5, infer_input("a", "FP16", [1, 2]))
    floats = field(5, infer_input("x", "FP32", [4], field(5, field(6, DATA))))
    yield "floats", bytes([0]) + floats
    unpacked = b"".join(varint(6 << 3 | 5) + DATA[i:i + 4] for i in (0, 4))
    yield "floats_twice", bytes([2]) + field(5, infer_input(
        "x", "FP32", [8], field(5, field(6, DATA) + unpacked), field(5, field(6, DATA[:8]))))
    region = attribute("shared_memory_region", field(3, "r"))
    yield "shared_memory", bytes([0]) + field(5, infer_input("x", "BF16", [2], field(4, region)))
    yield "other_contents", bytes([4]) + field(5, infer_input(
        "x", "INT8", [2], field(5, field(2, b"\1\2") + field(8, "b")))) + field(7, "")


def stream(window, row, data_type, shapes, *messages):
    dims = b"".join(bytes([len(shape), *shape]) for shape in shapes)
    return bytes([window, row, data_type]) + dims + bytes([0]) + b"".join(messages)


def chunk(length, kind=2, run=False, offset=None):
    """A chunk in MakeMessage's format: at the first gap, or so far behind it."""
    kind |= 0 if offset is None else 1
    head = bytes([128 if run else 1, kind, length])
    return head + (b"" if offset is None else struct.pack("<h", offset))


def raw_message(message):
    size = (len(message) + 3) // 4 * 4  # a length is half a multiple of eight
    return bytes([0, 2 * size]) + message.ljust(size, b"\0")


def streams():
    whole = [chunk(255) for _ in range(3)]
    yield "identity", stream(0, 0, 0, [[20]], *whole)
    yield "windows", stream(2, 3, 1, [[40]], *[chunk(90, run=True) for _ in range(8)])
    yield "backwards", stream(3, 4, 0, [[30]], chunk(100, offset=400), chunk(255), chunk(255),
                              chunk(255))
    yield "later_first", stream(3, 4, 0, [[200]], chunk(100, offset=400), chunk(255), chunk(145),
                                chunk(255), chunk(45))
    large = [chunk(length, kind=6) for length in (100, 100, 255, 195)]
    yield "large_later_first", stream(8, 4, 0, [[50, 60]], chunk(100, kind=6, offset=3200), *large)
    yield "softmax", stream(1, 5, 2, [[7, 9]], chunk(40), chunk(255, run=True))
    yield "matmul", stream(9, 7, 0, [[3, 4], [4, 5]], chunk(255), chunk(255, kind=10))
    yield "taken", stream(2, 3, 1, [[40]], chunk(90, run=True), chunk(30, offset=-60))
    yield "twice", stream(0, 1, 0, [[20]], chunk(100), chunk(50, offset=-20))
    yield "outside", stream(0, 2, 0, [[20]], chunk(255, kind=6, offset=600))
    yield "odd_shape", stream(0, 0, 0, [[255, 3]], *whole)
    yield "raw", stream(0, 0, 0, [[1]], raw_message(field(2, field(2, 0) + field(3, DATA))))


def put(flags, shape, *messages, odd=None, data_type=0):
    """One Put in PutRun's format, with its end."""
    head = bytes([flags, data_type, len(shape), *shape])
    return head + (b"" if odd is None else bytes([odd])) + bytes([0]) + b"".join(messages) + b"\xff"


def puts():
    has_data, has_digest, is_odd, no_header, unread, free = (1 << i for i in range(6))
    whole = [chunk(255) for _ in range(3)]
    huge = [11, 11, 11, 11]
    yield "chunks", bytes([3]) + put(0, [20], *whole)
    yield "whole", bytes([0]) + put(has_data, [3, 4]) + put(has_data, [3, 4])
    yield "windows", bytes([2]) + put(0, [200], *[chunk(255, kind=6, run=True) for _ in range(2)])
    yield "backwards", bytes([0]) + put(0, [30], chunk(100, offset=400), *whole)
    yield "questions", bytes([1]) + put(has_digest, [20]) + put(has_digest, [20], *whole) + put(
        has_digest, [20]) + put(has_digest | free, [20], *whole)
    yield "other_type", bytes([1]) + put(has_digest | has_data, [4]) + put(
        has_digest, [8], data_type=1)
    yield "freed", bytes([1]) + put(has_digest | has_data, [20]) + put(has_digest | free, [20])
    yield "wrong_digest", bytes([1]) + put(is_odd, [20], *whole, odd=0)
    yield "other_bytes", bytes([1]) + put(has_digest, [3, 1], raw_message(
        field(2, field(2, 0) + field(3, "others"))), data_type=1)
    yield "unread", bytes([1]) + put(has_data | unread, [20]) + put(
        has_data | has_digest | unread, [20])
    yield "no_room", bytes([1]) + put(has_data, huge) + put(has_digest, huge, chunk(0)) + put(
        has_data, huge)
    yield "lacks", bytes([1]) + put(0, [20], chunk(100))
    yield "twice", bytes([1]) + put(0, [20], chunk(100), chunk(50, offset=-20))
    yield "outside", bytes([1]) + put(0, [20], chunk(255, kind=6, offset=600))
    yield "no_header", bytes([1]) + put(no_header, [20], *whole)
    yield "header_twice", bytes([1]) + put(0, [20], raw_message(
        field(1, field(1, tensor(1, [2])) + field(4, "abc"))))
    yield "nothing", bytes([1]) + put(has_digest, [0]) + put(has_digest, [0])
    for odd in range(1, 8):
        yield f"odd_{odd}", bytes([1]) + put(is_odd | has_data, [20], *whole, odd=odd)
    yield "other_device", bytes([1]) + put(is_odd | has_digest, [20], *whole, odd=1)
    yield "odd_shape", bytes([1]) + put(0, [255, 3], *whole) + put(has_digest, [252], *whole)


def client_responses():
    for kind, message in enumerate([RESPONSE, field(1, tensor(1, [2, 2])) + field(2, "r"),
                                    field(1, KERNEL), field(1, DEVICE), BENCHMARK, PROFILE,
                                    field(1, 1)]):
        yield f"kind_{kind}", bytes([kind, 0]) + message
        yield f"kind_{kind}_pieces", bytes([kind, 7]) + message
    spec = field(1, field(1, 1) + field(2, bytes([4, 8])))
    checked = field(3, field(1, spec) + field(2, 1) + field(3, 0.5) + field(5, field(2, 1.5)) + field(10, bytes([0, 9])))
    timed = field(4, field(1, spec) + field(2, field(1, "pushed") + field(4, 1.5)) + field(8, 1))
    for name, event in [("checked", checked), ("timed", timed), ("compiled", field(2, field(2, "log") + field(9, 1))),
                        ("verdict", field(5, field(1, "PASSED") + field(5, field(1, "gpu"))))]:
        yield f"push_{name}", bytes([8, 7]) + event
    yield "push_many_results", bytes([8, 7]) + field(4, field(2, b"") * 1001)
    steps = b"".join(field(2, field(1, name) + field(2, "cpu") + field(3, 7) + field(4, LAUNCH)) for name in "hy")
    graph = (field(1, tensor(1, [2, 2], DATA)) + field(1, tensor(1, [2, 2]) + field(4, "0a")) + steps + field(3, "cpu")
             + field(4, TIMING) + field(5, "id") + field(6, 16) + field(7, 256) + field(8, 1))
    yield "graph", bytes([9, 0]) + graph
    yield "graph_pieces", bytes([9, 7]) + graph
    yield "graph_short", bytes([9, 7]) + field(1, tensor(1, [2, 2], DATA[:12])) + steps
    later = ROW[:-5] + field(5, bytes([1, 4]) + varint(257))  # types that there are not yet
    yield "later_types", bytes([2, 0]) + field(1, field(1, "gelu") + field(5, later))
    yield "health_wide", bytes([6, 0]) + field(1, 1 << 32 | 1)  # an enum has 32 bits
    header, done = bytes([0, 1 | 1 << 2, 1, 10]), bytes([0, 3])
    piece = lambda offset, size: bytes([0, 2]) + struct.pack("<h", offset) + bytes([size])
    yield "stream", bytes([7]) + header + piece(20, 20) + piece(0, 20) + done
    yield "stream_lacks", bytes([7]) + header + piece(0, 20) + done
    yield "stream_twice", bytes([7]) + header + piece(0, 20) + piece(10, 20) + done


def npy(choice, text):
    return bytes([choice, len(text)]) + text.encode()


def npys():
    made_up, uint16, version2, fit = 1, 2, 4, 8
    form = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }\n"
    yield "float32", npy(made_up | fit, form % ("<f4", "False", "(2, 3)"))
    yield "native", npy(made_up | fit, form % ("=f4", "False", "(2L, 3L)"))
    yield "named", npy(made_up | fit, form % ("float32", "False", "(2, 3)"))
    yield "float16", npy(made_up | fit | version2, form % ("<f2", "False", "(5,)"))
    yield "bfloat16", npy(made_up | fit | uint16, form % ("<u2", "False", "(2, 1, 2)"))
    yield "ml_dtypes", npy(made_up | fit, form % ("<V2", "False", "()"))
    yield "empty", npy(made_up | fit, form % ("<f4", "False", "(0, 9223372036854775807)"))
    yield "fortran", npy(made_up | fit, form % (">f4", "True", "(2, 3)"))
    yield "short", npy(made_up, form % ("<f4", "False", "(2,)")) + b"1234567"
    text = (form % ("<f4", "False", "(1,)")).encode()
    start = b"\x93NUMPY\x01\0" + struct.pack("<H", len(text))
    yield "whole_file", bytes([0]) + start + text + b"data"


def edits(*changes):
    return bytes([len(changes)]) + b"".join(
        struct.pack("<HB", at, len(change) - 1) + change for at, change in changes)


def workers():
    for kind, name in enumerate(["hello", "status", "request"]):
        yield name, bytes([kind]) + edits()
        yield f"{name}_changed", bytes([kind]) + edits((0, b"\x03"), (40, b"\xff\xff\xff\xff"))
    # Edits to a RunRequest: its row, the rank and the first dimension of its input, the bytes of
    # all texts and of its attribute's, its output's offset, and its input as a tensor that stays.
    number = 3328, struct.pack("<Q", 7)
    for name, *changes in [("row", (0, 8 * b"\xfe")), ("rank", (2756, b"\x09")),
                           ("large", (2760, struct.pack("<Q", 1 << 40))),
                           ("texts", (12, struct.pack("<I", 1 << 31))),
                           ("text", (2632, struct.pack("<I", 4097))),
                           ("beyond", (72, struct.pack("<Q", (1 << 20) - 256))),
                           ("askew", (72, struct.pack("<Q", 8193))),
                           ("allocate", (0, 4 * b"\xff"), (20, b"\x01"), (24, b"\x01"), number,
                            (64, struct.pack("<Q", 4096))),
                           ("graph", (0, b"\xfe\xff\xff\xff"), (64, 16 * b"\0")),
                           ("tensor", (24, b"\x01"), number),
                           ("tensor_end", (24, b"\x01"), number, (64, struct.pack("<Q", 12544))),
                           ("tensor_askew", (24, b"\x01"), number, (64, b"\x01")),
                           ("tensors", (24, b"\xff"))]:
        yield f"request_{name}", bytes([2]) + edits(*changes)
        yield f"at_work_{name}", bytes([5]) + edits(*changes) + edits()
    yield "at_work_used", bytes([5]) + edits(
        (0, 4 * b"\xff"), (20, b"\x01"), (24, b"\x01"), number, (64, struct.pack("<Q", 4096))) + edits(
        (24, b"\x01"), number) + edits()
    yield "reply", bytes([3]) + edits() + bytes([0])
    yield "reply_bell", bytes([3]) + edits() + bytes([0x11]) + struct.pack("<I", 2) + b"\0"
    minus_one = 8 * b"\xff"
    yield "reply_nonsense", bytes([3]) + edits((1040, minus_one), (1052, minus_one)) + bytes([0])
    yield "datagram", bytes([4]) + struct.pack("<H", 7) + b"nothing"
    yield "at_work", bytes([5]) + edits((0, b"\0")) + edits((8, b"\x09")) + edits((24, 8 * b"\x01"))


def inspect_children():
    yield "answer", bytes([0, 0, 6]) + edits() + b"answer"
    yield "error", bytes([0, 5, 0]) + edits((0, b"\x08"), (4, b"\x01")) + b"wrong"
    yield "giant", bytes([0, 0, 6]) + edits((24, 8 * b"\xff")) + b"answer"
    yield "any", bytes([1]) + 40 * b"\0"
    yield "request", bytes([2, 2 * 7 + 1]) + b"request"
    yield "giant_request", bytes([2, 0]) + 7 * b"\xff" + b"\x7f" + b"request"


def self_tests():
    passes = bytes(16 * row for row in (3, 7, 0, 1, 2, 4, 5, 6))
    yield "all_pass", passes
    crash = bytes([16 * 1 + 8]) + edits((0, b"\x04"), (12, b"\x04")) + b"\xff"
    yield "one_crashes", passes[:3] + crash
    yield "unknown_kind", bytes([16 * 3 + 8]) + edits((0, b"\x07")) + passes
    yield "without_reason", bytes([16 * 3 + 8]) + edits((0, b"\x03"), (16, b"\x01")) + passes
    yield "negative", bytes([16 * 3 + 8]) + edits((32, 8 * b"\xff")) + passes
    for name, rate in [("rate", 2.5), ("no_rate", float("nan"))]:
        told = edits((20, b"\x01"), (48, struct.pack("<d", rate)), (56, struct.pack("<d", 1e9)))
        yield name, bytes([16 * 3 + 8]) + told + passes[1:]
    yield "packet", bytes([15]) + b"fifteen bytes.." + passes


def traceparents():
    good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    yield "good", good.encode()
    yield "not_sampled", (good[:-2] + "00").encode()
    yield "flags_even", (good[:-2] + "fa").encode()
    yield "flags_odd", (good[:-2] + "0b").encode()
    yield "version", ("cc" + good[2:]).encode()
    yield "zeros", b"00-" + 32 * b"0" + b"-b7ad6b7169203331-01"
    yield "zero_parent", b"00-0af7651916cd43dd8448eb211c80319c-" + 16 * b"0" + b"-01"
    yield "least", b"00-" + 31 * b"0" + b"1-" + 15 * b"0" + b"1-00"
    yield "more", (good + "-00").encode()
    yield "longer", (good + "0").encode()
    yield "shorter", good[:-1].encode()
    yield "shorter_id", (good[:10] + good[11:]).encode()
    yield "no_hex", good.replace("af", "ag").encode()
    yield "upper", good.upper().encode()


def https():
    get, put = b"GET /healthz HTTP/1.1\r\nHost: h\r\n", b"PUT /log_level HTTP/1.1\r\nHost: localhost\r\n"
    sized = put + b"Content-Length: 5\r\n\r\nerror"
    chunked = put + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nerr\r\n02\r\nor\r\n0\r\nA: b\r\n\r\n"
    yield "get", get + b"\r\n"
    yield "absolute", b"GET http://h:1/metrics?x HTTP/1.0\r\n\r\n"
    yield "sized", sized
    yield "chunked", chunked
    yield "last_chunk", put + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield "several", b"\r\n" + get + b"\r\n\r\n" + chunked + sized + get + b"\r\n"
    yield "blank", get + b"Content-Length : %d\r\n\r\n" % len(sized) + sized
    yield "two", get + b"Content-Length: 0\r\nContent-Length: %d\r\n\r\n" % len(sized) + sized
    yield "two_alike", get + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n"
    yield "both", put + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield "folded", get + b"Content-Length:\r\n %d\r\n\r\n" % len(sized) + sized
    yield "fold_within", get + b"X: a\r\n\tContent-Length: %d\r\n\r\n" % len(sized) + sized
    yield "coding", put + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n" + sized
    yield "hexadecimal", put + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nerror\r\n0\r\n\r\n"
    yield "long", b"GET /" + 8200 * b"x" + b" HTTP/1.1\r\nHost: h\r\n\r\n"


def compilers():
    def texts(*each):
        return b"".join(struct.pack("<Q", len(text)) + text for text in each)

    def elf(symbols):
        names, table = b"\0", 24 * b"\0"
        for name, section in symbols:
            table += struct.pack("<IBBHQQ", len(names), 0, 0, section, 0, 0)
            names += name + b"\0"
        sections = 64 + len(names) + len(table)
        header = struct.pack("<4sBBBB8xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0x41, 2, 190, 1, 0, 0, sections,
                             0, 64, 56, 0, 64, 3, 0)
        return (header + names + table + 64 * b"\0" + struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
                + struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, 64 + len(names), len(table), 1, 0, 8, 24))
    yield "code", b"\x00" + texts(b"cubin", b"ptx", b"log", texts(b"f", b"g"))
    yield "code_short", b"\x00" + texts(b"cubin", b"ptx", b"log")
    yield "code_size", b"\x00" + texts(b"cubin") + struct.pack("<Q", 1 << 63)
    yield "source", b"\x01" + texts(b"text", texts(b"-O"), b"f.cu", texts(b"f<T>"), b"1")
    yield "source_truth", b"\x01" + texts(b"text", b"", b"f.cu", b"", b"2")
    yield "cubin", b"\x02" + elf([(b"f", 1), (b"vprintf", 0)])
    yield "cubin_cut", b"\x02" + elf([(b"f", 1), (b"vprintf", 0)])[:-20]
    yield "cubin_far", b"\x02" + elf([(b"f", 1)])[:40] + 8 * b"\xff" + elf([(b"f", 1)])[48:]
    yield "made_cubin", b"\x03\x02\x00\x07vprintf\x01\x01f\x00\x00\x00"
    yield "made_cubin_wrong", b"\x03\x01\x00\x04free\x01\x48\x00\x07\xff\xff\xff\xff\x00\x00"
    yield "ptx", b"\x05.visible .entry f(\n\t.param .u64 .ptr .align 1 a,\n\t.param .align 8 .b8 b[24]\n)\n"
    yield "ptx_cut", b"\x05.entry g() .entry f(.param .f32 a, .param .b8 b["
    yield "log", b"\x04\x20a\x1b[31mb\xff\xc2\x85\xed\xa0\x80\xf0\x9f\x98\x80\x00\r\n"


def cubin_files():
    def written(data, version=1, key=b"key"):
        return (struct.pack("<8sIIQ", b"warpcubn", version, 0, len(data)) + hashlib.sha256(key).digest()
                + hashlib.sha256(data).digest() + data)
    yield "right", b"\x00" + written(b"code")
    yield "no_data", b"\x00" + written(b"")
    yield "another_key", b"\x00" + written(b"code", key=b"another")
    yield "another_version", b"\x00" + written(b"code", version=2)
    yield "more", b"\x00" + written(b"code") + b"more"
    yield "empty", b"\x00"
    yield "made_right", b"\x01\x08some data\x00"
    yield "made_wrong", b"\x01\x08some data\x01\x5a\x00\x00X"
    yield "made_short", b"\x03\x08some data\x00\x50\x00"


def tuning_tables():
    stamp = 'stamp 1763877600000000000 "0.1.0" "580.65" 1980 1980 "power \\"cap\\""\n'
    rows = "right simd_fused 142000 141800.5 1.5e+05 stable\nwrong float64 inf \"0.1.0\"\n"
    gelu = 'class "NVIDIA H200, 132 multiprocessors" gelu float32[4096] approximate="none"\n'
    yield "one", (gelu + stamp + rows).encode()
    yield "several", (gelu + stamp + 'class "x" softmax bfloat16[2,3,4] axis=1\n' + stamp + gelu + rows).encode()
    yield "fused", b'class "" fused float16[3,5] float16[5] expression="where(x0 < 1e-5, x1, 1)" seed=-3\n'
    yield "unknown", ('class "x" another float32[4] what="is this"\n' + stamp + "right row 1 1 1 unstable\n").encode()
    yield "no_such_problem", b'class "x" matmul float32[4,5] float32[6,7] transpose_a=maybe\n'
    yield "unclosed", b'class "x\\" gelu float32[4]\n'
    yield "no_class", stamp.encode()
    body = "warpcall tuning table 1\n" + gelu + stamp + rows
    end = f"end 1 {hashlib.sha256(body.encode()).hexdigest()}\n"
    yield "file", ("!" + body + end).encode()
    yield "cut", ("!" + body + end)[:-9].encode()
    yield "another_version", ("!" + (body + end).replace("table 1", "table 2")).encode()


def expressions():
    for number, text in enumerate([
            "x0", "gelu(x0 + x1) * 0.5", "softmax(x0 * 0.125 + x1)", "-(-x0) / (1.5e-3 - x7)",
            "(x0 - mean(x0)) * rsqrt(var(x0) + 1e-5) * x1 + x2", "dropout(relu(x0), 0.25)",
            "where(x0 <= x1, pow(x0, -(1/2)), max(x0, min(x1)))", "x0 + x1 * x2 - x3 / x4 + x5",
            "max(x0 * 0.125 + x1)", "where((x0 == 1), silu(x0), erf(x0)) + sigmoid(exp2(x0)) - log(abs(x0))"]):
        yield f"{number}", text.encode()
    yield "operations", b"x0" + 256 * b"+x0"
    yield "too_many", b"x0" + 257 * b"+x0"
    yield "deep", 64 * b"(" + b"x0" + 64 * b")"
    yield "too_deep", 65 * b"-" + b"x0"
    yield "unclosed", 2000 * b"exp("
    yield "long", b"x0" + 5000 * b" "
    yield "constants", b"x0 * (1/0 - 1/0) + 1e38 * 10 - 1e-400 + 0x10"


def manifests():
    softmax = {"name": "softmax", "op": "softmax", "types": ["float32"], "attributes": {"axis": -1},
               "code": {"kind": "cuda", "entry": "softmax<T>", "options": ["-std=c++20", "-DROWS=4"]},
               "args": ["x.ptr", "y.ptr", "scratch.ptr", "rows:i64", "x.shape[-1]:i32", "1.5:f32", "zero:u64"],
               "launch": {"grid": ["ceil(rows / 4)", 1], "block": [32, 4], "shared": "min(cols, 8) * 4"},
               "scratch": "next_pow2(y.bytes)", "requires": ["cols % 8 == 0"],
               "examples": [[[64, 32]], [[3, 3, 64]]]}
    yield "softmax", json.dumps(softmax, indent=1).encode()
    yield "comment", b"// warpcall-kernel " + json.dumps(softmax, indent=1).replace("\n", "\n// ").encode()
    product = {"name": "product", "op": "matmul", "types": ["bfloat16", "float16"], "deterministic": False,
               "code": {"kind": "cuda"}, "kernels": [
                   {"entry": "split", "args": ["a.ptr", "b.ptr", "c.ptr", "m:u32", "attr.transpose_a:i32"],
                    "launch": {"grid": ["ceil(m / 64)", "ceil(n / 64)", "batch"], "block": [128]}},
                   {"entry": "add", "args": ["c.ptr", "k:f32"], "launch": {"grid": ["sm_count"], "block": ["max(m, 32) % 1024"]}}],
               "examples": [[[64, 32], [32, 128]]]}
    yield "product", json.dumps(product).encode()
    for number, text in enumerate([
            "1 + 2 * 3 - 4 / 5 % 6", "ceil((rows + 1) / 4) * max(cols, elements, 7)", "next_pow2(rows - 5)",
            "9223372036854775807 + rows", "0 - 9223372036854775807 - 1", "rows / (cols - cols)", "cols % 8 == rows"]):
        yield f"expression_{number}", b"=" + text.encode()
    yield "deep", b"=" + 17 * b"(" + b"1" + 17 * b")"
    yield "long", b"=1" + 128 * b"+1"
    yield "nested", 3000 * b"[" + 3000 * b"]"


def graphs():
    """See graph_fuzz.cc."""
    matrix = lambda rows, columns: [0, 0, 2, 0, rows, 0, columns]
    step = lambda kernel, *reads, attributes=(0,): [0, kernel, len(reads), *reads, *attributes]
    gelu, softmax, identity, matmul, fused, linear = range(6)
    yield "chain", bytes([1, 3, *matrix(2, 3), *step(gelu, 0), *step(softmax, 1), *step(identity, 2), 1, 3, 0, 1])
    yield "kept", bytes([1, 2, *matrix(4, 4), *step(gelu, 0), *step(matmul, 1, 0, attributes=[4]), 2, 2, 1, 1, 3, 0])
    yield "twice", bytes([1, 1, *matrix(3, 3), *step(fused, 0, 0, attributes=[1]), 1, 1, 0, 0])
    yield "layer", bytes([3, 1, *matrix(2, 3), *matrix(4, 3), 0, 0, 1, 0, 4, *step(linear, 0, 1, 2), 1, 3, 0, 0])
    yield "itself", bytes([1, 1, *matrix(3, 3), *step(gelu, 1), 1, 1, 0, 0])
    yield "names", bytes([1, 1, 252, *matrix(3, 3)[1:], *step(gelu, 255), 1, 255, 2, 0])
    yield "graph", bytes([1, 1, *matrix(3, 3), *step(7, 0), 1, 1, 0, 0])


def access_files():
    yield "policies", json.dumps({
        "default": {"methods": ["ListKernels"], "requests_in_flight_max": 2},
        "principals": {"alice": {"kernels": ["gelu", "softmax"], "share": 2.5, "devices": ["cuda:0"],
                                 "implementations": ["cuda"], "bytes_in_flight_max": 1 << 30},
                       "CN=bob,O=Example": {"methods": ["Execute"]}}}).encode()
    yield "default_only", b'{"default": {}}'
    yield "twice", b'{"default": {}, "principals": {"a": {"share": 1}, "a": {"share": 2}}}'
    yield "method", b'{"default": {"methods": ["Excute"]}}'
    yield "share", b'{"default": {"share": 1e-3}}'
    yield "huge", b'{"default": {"bytes_in_flight_max": 18446744073709551616}}'
    yield "deep", 3000 * b"[" + 3000 * b"]"
    yield "bytes", b'{"principals": {"\xff\x00": {}}}'
    yield "tokens", b"# who\nalice alice-0123456789abcdef\n\n bob\tbob-0123456789abcdef\r\n"
    yield "token_twice", b"alice secret-0123456789\nbob secret-0123456789\n"
    yield "three_words", b"alice secret-0123456789 secret-0123456789\n"
    yield "short", b"alice 0123\n"


TARGETS = {"access_file_fuzz": access_files,
           "request_fuzz": requests, "infer_request_fuzz": infer_requests, "stream_fuzz": streams,
           "put_fuzz": puts, "graph_fuzz": graphs,
           "npy_fuzz": npys,
           "client_response_fuzz": client_responses, "worker_fuzz": workers,
           "inspect_child_fuzz": inspect_children, "self_test_fuzz": self_tests,
           "http_fuzz": https, "traceparent_fuzz": traceparents, "expression_fuzz": expressions,
           "manifest_fuzz": manifests,
           "compiler_fuzz": compilers, "cubin_file_fuzz": cubin_files, "tuning_fuzz": tuning_tables}


def main(corpus):
    shutil.rmtree(corpus, ignore_errors=True)
    shutil.copytree(CORPUS, corpus)
    for target, inputs in TARGETS.items():
        folder = pathlib.Path(corpus) / target
        folder.mkdir(exist_ok=True)
        for name, data in inputs():
            (folder / f"made_{name}").write_bytes(data)


if __name__ == "__main__":
    main(*sys.argv[1:])
