"""Random problems of tests/differential, called through the Python client and checked by NumPy."""

import random
import types

from support import np
from differential import TYPE_NAMES, Problem

KERNELS = ["identity", "gelu", "softmax", "matmul", "fused", "layernorm", "rmsnorm",
           "linear"]
DTYPES = {1: np.dtype("<f4"), 2: np.dtype("<f2"), 3: np.dtype("<u2")}
ELEMENTS_MAX = 1 << 16


def arrays_of(problem):
    return [np.frombuffer(data, DTYPES[problem.data_type]).reshape(shape)
            for (data, _), shape in zip(problem.tensors, problem.shapes)]


def dtype_of(problem):
    return "bfloat16" if problem.data_type == 3 else None


def wrong_in(problem, result):
    """Returns None, or the error by NumPy's float64."""
    array = result.outputs[0]
    name = result.dtype_name
    if name != TYPE_NAMES[problem.data_type]:
        return f"a result of {name}"
    if name == "bfloat16":
        array = array.view(np.uint16)
    output = types.SimpleNamespace(shape=array.shape, data_type=problem.data_type,
                                   data=np.ascontiguousarray(array).tobytes())
    wrong = problem.check(types.SimpleNamespace(
        outputs=[output], launch=result.launch, implementation=result.implementation))
    return wrong and f"{problem} by {result.implementation}: {wrong}"


def mixed(seed, count):
    rng, numpy_rng = random.Random(seed), np.random.default_rng(seed)
    for _ in range(count):
        yield Problem(rng.choice(KERNELS), rng, numpy_rng, ELEMENTS_MAX)
