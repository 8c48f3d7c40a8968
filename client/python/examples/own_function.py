"""A function of one's own as one kernel: x silu(gate), normalized and weighed, as in language
models. Runs it on a server, fused and as the chain of its operations, and in NumPy.

    python own_function.py [--server ADDRESS] [--rows 512] [--columns 4096]
"""

import argparse
from typing import Any

import numpy as np

import warpcall


@warpcall.fuse
def gated_norm(x: Any, gate: Any, weight: Any) -> Any:
    gated = x * warpcall.silu(gate)
    square = np.mean(np.square(gated), axis=-1, keepdims=True)
    return gated * warpcall.rsqrt(square + 1e-6) * weight


def in_numpy(x: Any, gate: Any, weight: Any) -> Any:
    gated = x * (gate / (1 + np.exp(-gate)))
    square = np.mean(np.square(gated), axis=-1, keepdims=True)
    return gated / np.sqrt(square + 1e-6) * weight


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--columns", type=int, default=4096)
    options = parser.parse_args()
    random = np.random.default_rng(0)
    shape = options.rows, options.columns
    inputs = [random.standard_normal(size).astype(np.float32) for size in (shape, shape, shape[1:])]
    print(gated_norm.expression)
    with warpcall.connect(options.server, timeout=60) as gpu:
        for implementation in ("", "manual"):
            gpu.fused(gated_norm, *inputs, implementation=implementation)  # once, to warm up
            print(gpu.fused(gated_norm, *inputs, implementation=implementation))
        y = gpu.fused(gated_norm, *inputs)
    expected = in_numpy(*(array.astype(np.float64) for array in inputs))
    print("largest difference from NumPy's float64:", float(np.abs(y - expected).max()))


if __name__ == "__main__":
    main()
