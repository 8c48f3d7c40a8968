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
from ._messages import ServerInfoResponse
from ._profile import Profile
from ._proto import (
    AttributeInfo,
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
    "Description",
    "DeviceInfo",
    "Error",
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
    "plot",
]
