"""A block of a multi-layer perceptron on the server: linear with gelu, linear, and layernorm of the sum with the input.

    python mlp_block.py [--server 127.0.0.1:8470] [--rows 512] [--seconds 2]

The weights are put on the device once, and what one call computes for the next stays there as well. Prints how far the
result is from NumPy's in float64, and how many blocks of one row a second the server computes with weights that stay
and with weights that every call sends. Exit status 1 when the result is too far from NumPy's.
"""

import argparse
import math
import sys
import time

import numpy as np
import warpcall

WIDTH, HIDDEN = 1024, 4096
EPSILON = 1e-5
SEED = 20261129
# Sums of 4096 float32 products with results of about 1: some 2e-6 were seen.
DIFFERENCE_MAX = 1e-4


def make_weights(rng):
    """weight and bias of both linears, as the kernel takes them, and of layernorm."""
    def normal(*shape, scale):
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    return [normal(HIDDEN, WIDTH, scale=WIDTH**-0.5), normal(HIDDEN, scale=0.1),
            normal(WIDTH, HIDDEN, scale=HIDDEN**-0.5), normal(WIDTH, scale=0.1),
            1 + normal(WIDTH, scale=0.1), normal(WIDTH, scale=0.1)]


# layernorm of the input and its update.
RESULT = f"(x0 + x1 - mean(x0 + x1)) * rsqrt(var(x0 + x1) + {EPSILON}) * x2 + x3"


def run_resident(gpu, x, weights):
    """Only x and the result are sent."""
    up, up_bias, down, down_bias, scale, shift = weights
    hidden = gpu.linear(x, up, up_bias, activation="gelu", keep=True)
    update = gpu.linear(hidden, down, down_bias, keep=True)
    y = gpu.fused(RESULT, x, update, scale, shift)
    gpu.free(hidden, update)
    return y


def run_sent(gpu, x, weights):
    """The same calls with arrays, which are sent each time."""
    up, up_bias, down, down_bias, scale, shift = weights
    hidden = gpu.linear(x, up, up_bias, activation="gelu")
    update = gpu.linear(hidden, down, down_bias)
    return gpu.fused(RESULT, x, update, scale, shift)


def run_numpy(x, weights):
    """In float64."""
    x, up, up_bias, down, down_bias, scale, shift = (a.astype(np.float64) for a in [x, *weights])
    h = x @ up.T + up_bias
    h = 0.5 * h * (1 + np.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    total = x + h @ down.T + down_bias
    deviation = total - total.mean(-1, keepdims=True)
    variance = (deviation**2).mean(-1, keepdims=True)
    return deviation / np.sqrt(variance + EPSILON) * scale + shift


def blocks_per_second(run, seconds):
    run()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        run()
        count += 1
    return count / (time.perf_counter() - begin)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="default: $WARPCALL_SERVER, or 127.0.0.1:8470")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--seconds", type=float, default=2, help="for each measurement")
    options = parser.parse_args()
    rng = np.random.default_rng(SEED)
    weights = make_weights(rng)
    x = rng.standard_normal((options.rows, WIDTH)).astype(np.float32)
    with warpcall.connect(options.server, timeout=60) as gpu:
        residents = [gpu.put(weight, label="mlp_block") for weight in weights]
        print(f"{sum(w.nbytes for w in residents) / 2**20:.1f} MiB of weights on {residents[0].device}")
        y = run_resident(gpu, x, residents)
        difference = float(np.abs(y - run_numpy(x, weights)).max())
        print(f"{options.rows}x{WIDTH}: largest difference from NumPy {difference:.1e},"
              f" allowed {DIFFERENCE_MAX:.0e}")
        row = x[:1]
        stay = blocks_per_second(lambda: run_resident(gpu, row, residents), options.seconds)
        sent = blocks_per_second(lambda: run_sent(gpu, row, weights), options.seconds)
        print(f"1x{WIDTH}: {stay:.0f} blocks/s with weights that stay, {sent:.1f} with weights sent:"
              f" {stay / sent:.1f} times as many")
        gpu.free(*residents)
    return 0 if difference <= DIFFERENCE_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
