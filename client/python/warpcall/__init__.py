"""Warpcall's client: kernels on a server's GPUs and CPU, called as NumPy functions.

import warpcall
with warpcall.connect("127.0.0.1:8470") as gpu:
    y = gpu.softmax(x, axis=-1)
"""

from . import aio
from ._arrays import BFloat16Bits
from ._channel import TLS
from ._client import Client, connect
from ._comparison import Comparison, compare
from ._fast import FAST
from ._functions import abs as abs
from ._functions import (
    dropout,
    erf,
    exp,
    exp2,
    gelu,
    gelu_erf,
    log,
    mean,
    relu,
    rsqrt,
    sigmoid,
    silu,
    softmax,
    sqrt,
    tanh,
    var,
    where,
)
from ._functions import max as max
from ._functions import min as min
from ._functions import pow as pow
from ._functions import sum as sum
from ._fuse import Fused, fuse
from ._graph import Graph, GraphFunction
from ._graph_result import GraphDescription, GraphResult, GraphStepRow, GraphSteps
from ._graph_value import GraphValue
from ._messages import ServerInfoResponse
from ._profile import Profile
from ._proto import (
    AttributeInfo,
    DescribedStep,
    DeviceInfo,
    ImplementationInfo,
    KernelInfo,
    LaunchInfo,
    PushCompiled,
    PushQueued,
    PushVerdict,
    SourceFile,
    TensorInfo,
    TensorSpec,
    Timing,
    TunedClass,
)
from ._push import Push, PushCheck, PushTiming
from ._reports import Benchmark, BenchmarkRow, Description, Tensors, plot
from ._request import Blocks
from ._residents import Resident
from ._result import Result
from ._retry import Retry
from ._version import VERSION as __version__
from .errors import (
    Cancelled,
    DeadlineExceeded,
    Error,
    Internal,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    PushRejected,
    ResourceExhausted,
    Unauthenticated,
    Unavailable,
    Unimplemented,
)

# Without abs, max, min, pow and sum, so that `from warpcall import *` leaves Python's own.
__all__ = [
    "FAST",
    "TLS",
    "AttributeInfo",
    "BFloat16Bits",
    "Benchmark",
    "BenchmarkRow",
    "Blocks",
    "Cancelled",
    "Client",
    "Comparison",
    "DeadlineExceeded",
    "DescribedStep",
    "Description",
    "DeviceInfo",
    "Error",
    "Fused",
    "Graph",
    "GraphDescription",
    "GraphFunction",
    "GraphResult",
    "GraphStepRow",
    "GraphSteps",
    "GraphValue",
    "ImplementationInfo",
    "Internal",
    "InvalidArgument",
    "KernelInfo",
    "LaunchInfo",
    "NotFound",
    "PermissionDenied",
    "Profile",
    "Push",
    "PushCheck",
    "PushCompiled",
    "PushQueued",
    "PushRejected",
    "PushTiming",
    "PushVerdict",
    "Resident",
    "ResourceExhausted",
    "Result",
    "Retry",
    "ServerInfoResponse",
    "SourceFile",
    "TensorInfo",
    "TensorSpec",
    "Tensors",
    "Timing",
    "TunedClass",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "__version__",
    "aio",
    "compare",
    "connect",
    "dropout",
    "erf",
    "exp",
    "exp2",
    "fuse",
    "gelu",
    "gelu_erf",
    "log",
    "mean",
    "plot",
    "relu",
    "rsqrt",
    "sigmoid",
    "silu",
    "softmax",
    "sqrt",
    "tanh",
    "var",
    "where",
]
