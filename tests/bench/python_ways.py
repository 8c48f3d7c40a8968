"""The ways to make one call of identity that tests/bench/python_client.py times, by name."""

import json
import os
import subprocess
import sys
from unittest import mock

import numpy as np

import warpcall
from differential import SERVICE
from warpcall import _calls, _client

try:
    import warpcall_fast
except ImportError:
    warpcall_fast = None
try:
    # Its protobuf must be of before 7.0; its models' names and shapes are never looked at here.
    import tritonclient.grpc as triton
    from tritonclient.grpc import _utils as triton_utils
    from tritonclient.grpc import service_pb2 as triton_messages
except ImportError:
    triton = None

MIB = 1 << 20
# From here on the C++ client's stream is beside the Python one's.
STREAM_BYTES = 64 * MIB
# A few calls at a speed that any machine has.
CPP_SECONDS_MIN = 0.1  # a busy machine may take hundredths for one call, and longer for the first
CPP_ATTEMPTS = 4
SLOWEST_BYTES_PER_SECOND = 100e6


def pure_client(address):
    """A client without the module, in a process that has it."""
    with mock.patch.object(_client, "open_calls", _calls.Calls):
        return warpcall.connect(address)


def request_of(messages, x):
    message = messages.ExecuteRequest(kernel="identity")
    message.inputs.add(data_type=1, shape=x.shape, data=x.tobytes())
    return message.SerializeToString()


def protobuf_way(method, messages, x):
    def call():
        response = messages.ExecuteResponse.FromString(method(request_of(messages, x)))
        output = response.outputs[0]
        return np.frombuffer(output.data, np.float32).reshape(output.shape)

    return call


def triton_way(method, ready, x):
    """All that tritonclient does for a call but gRPC's part, which is the bare call's."""
    answer = triton_messages.ModelInferResponse(model_name="identity")
    answer.outputs.add(name="y", datatype="FP32", shape=x.shape)
    answer.raw_output_contents.append(x.tobytes())
    answer = answer.SerializeToString()

    def call():
        given = triton.InferInput("x", x.shape, "FP32")
        given.set_data_from_numpy(x)
        request = triton_utils._get_inference_request(
            model_name="identity", inputs=[given], model_version="", request_id="", outputs=None,
            sequence_id=0, sequence_start=False, sequence_end=False, priority=0, timeout=None,
            parameters=None)
        request.SerializeToString()
        method(ready)
        result = triton.InferResult(triton_messages.ModelInferResponse.FromString(answer))
        return result.as_numpy("y")

    return call


def stream_way(address, x):
    """The C++ client's ExecuteStream: a call of the module with that option."""
    calls = warpcall_fast.Calls(address, (1, 20.0), (5, 0.05, 2.0, 60.0, 50.0, 0.1))
    terms, operand = ("identity", "", "", "", 0.0, ""), (1, x.shape, x)

    def call():
        answer = calls.run(terms, {}, [operand], (True, None, None, None))
        assert type(answer) is warpcall_fast.Answer, answer.message

    return call


def ways(address, channel, clients, messages, x):
    """Calls to be timed, by name; "bare" sends bytes that were made beforehand. `clients`: without
    the module, and with it."""
    method = channel.unary_unary(SERVICE + "Execute")
    ready = request_of(messages, x)
    pure, fast = clients
    found = {"bare": lambda: method(ready), "warpcall": lambda: pure.identity(x)}
    if warpcall_fast is not None:
        found["fast"] = lambda: fast.identity(x)
        if x.nbytes >= STREAM_BYTES:
            found["stream"] = stream_way(address, x)
    found["protobuf"] = protobuf_way(method, messages, x)
    if triton is not None:
        found["tritonclient"] = triton_way(method, ready, x)
    return found


def cpp_seconds(build, address, nbytes, seconds):
    """Median seconds of Execute by the C++ client, a program of its own, over some calls at least."""
    seconds = max(seconds, CPP_SECONDS_MIN, nbytes / SLOWEST_BYTES_PER_SECOND)
    for _ in range(CPP_ATTEMPTS):
        done = subprocess.run(
            [os.path.join(build, "bin", "warpcall"), "load", "--server", address, "identity", "--shape",
             str(nbytes // 4), "--concurrency", "1", "--warmup", "0.2", "--duration", f"{seconds:.3f}",
             "--json"], capture_output=True, text=True, check=False)
        if "no request was sent" not in done.stderr:
            break
        seconds *= 4
    if done.returncode != 0:
        sys.exit(f"warpcall load: {done.stderr}")
    return json.loads(done.stdout)["all"]["latency"]["p50_ns"] / 1e9
