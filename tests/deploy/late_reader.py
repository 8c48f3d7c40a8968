#!/usr/bin/env python3
"""Calls identity by ExecuteStream, and reads the answer SECONDS after gRPC has got all of the input, or as much as
went. Checks that the answer is right and in time.

    late_reader.py ADDRESS MIB SECONDS

Servers and proxies hold unread answers, and go on when somebody reads. One that stops reading a connection while a
buffer is full never sees the frames that open its windows (HAProxy 2.6). Exit status 0: the answer was right.
"""

import os
import pathlib
import sys
import time
import types

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client/python"))

import grpc  # noqa: E402
from warpcall import _execute  # noqa: E402

METHOD = "/warpcall.v1.KernelService/ExecuteStream"
CHUNK_BYTES = 1 << 20
FLOAT32, CHUNK = 1, 2
DEADLINE_SECONDS = 20


def requests(data):
    x = types.SimpleNamespace(data_type=FLOAT32, shape=(data.nbytes // 4,))
    header = _execute.encode_header(_execute.Call("identity"), [x])
    yield _execute.stream_header(header)
    for at in range(0, data.nbytes, CHUNK_BYTES):
        yield _execute.stream_chunk(0, at, data[at:at + CHUNK_BYTES])


def answer(call):
    for message in call:
        kind, begin, end = _execute.split_stream_response(message)
        if kind == CHUNK:
            chunk = _execute.parse_chunk(message, begin, end)
            yield message[chunk.span[0]:chunk.span[1]]


def main():
    address, mib, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    data = os.urandom(mib << 20)
    with grpc.insecure_channel(address, options=[("grpc.max_receive_message_length", -1)]) as channel:
        call = channel.stream_stream(METHOD)(requests(memoryview(data)), timeout=DEADLINE_SECONDS)
        time.sleep(seconds)
        try:
            right = b"".join(answer(call)) == data
        except grpc.RpcError as error:
            print(f"{error.code().name}: {error.details()}")
            return 1
    print("right" if right else "wrong")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
