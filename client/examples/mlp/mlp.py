"""Multi-layer perceptrons on the server, each a graph: one request, with weights that stay on the device.

    python mlp.py [--server 127.0.0.1:8470] [--layers 8] [--rows 128] [--seconds 2] [--profile FILE.svg]

Runs the forward pass of some layers, the block that a transformer has in each of its layers, and forward and backward
of one layer. Prints how far each is from NumPy's in float64, the time of each step of the forward pass, and how many
forward passes a second the server computes by a graph, by a call for each layer whose results stay, and by calls that
send the weights. Exit status 1 when a result is too far from NumPy's. --profile draws one forward pass in float16, as
the server's profiler saw it; it needs matplotlib.
"""

import argparse
import json
import math
import sys
import time

import numpy as np
import warpcall

WIDTH, HIDDEN = 1024, 4096
EPSILON = 1e-5
SEED = 20261129
# Sums of up to 4096 float32 products, of up to 8 layers; some 1e-5 of the largest value were seen.
DIFFERENCE_MAX = 1e-4

# gelu's slope at x0, times x1: the tanh form, which linear and gelu have.
TANH = f"tanh({math.sqrt(2 / math.pi)!r} * (x0 + 0.044715 * x0 * x0 * x0))"
SLOPE = (f"x1 * (0.5 * (1 + {TANH}) + x0 * (1 - {TANH} * {TANH})"
         f" * {0.5 * math.sqrt(2 / math.pi)!r} * (1 + {3 * 0.044715!r} * x0 * x0))")


def normal(rng, *shape, scale=1.0):
    return (scale * rng.standard_normal(shape)).astype(np.float32)


def gelu(z):
    return 0.5 * z * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3)))


def gelu_slope(z):
    t = np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))
    return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * z * z)


# ---- layers, a step each ------------------------------------------------------------------------

def forward_graph(gpu, layers):
    """y of x, by linear with gelu for each (weight, bias)."""
    with gpu.graph() as g:
        h = g.input("x")
        for number, (weight, bias) in enumerate(layers):
            h = g.linear(h, weight, bias, activation="gelu", name=f"layer_{number}")
        g.output(h)
    return g.build()


def forward_calls(gpu, x, layers):
    """The same with a call for each layer; results between them stay on the device."""
    kept = []
    for number, (weight, bias) in enumerate(layers):
        x = gpu.linear(x, weight, bias, activation="gelu", keep=number + 1 < len(layers))
        kept.append(x)
    gpu.free(*kept[:-1])
    return x


def forward_sent(gpu, x, layers):
    """The same with arrays, which are sent each time."""
    for weight, bias in layers:
        x = gpu.linear(x, weight, bias, activation="gelu")
    return x


def forward_numpy(x, layers):
    for weight, bias in layers:
        x = gelu(x @ weight.T + bias)
    return x


# ---- a transformer's block ----------------------------------------------------------------------

def block_graph(gpu, up, up_bias, down, down_bias, scale, shift):
    """layernorm of the input and its update, by two linears."""
    with gpu.graph() as g:
        x = g.input("x")
        hidden = g.linear(x, up, up_bias, activation="gelu")
        total = g.fused("x0 + x1", x, g.linear(hidden, down, down_bias))
        g.output(g.layernorm(total, scale, shift, epsilon=EPSILON), "y")
    return g.build()


def block_numpy(x, up, up_bias, down, down_bias, scale, shift):
    total = x + gelu(x @ up.T + up_bias) @ down.T + down_bias
    deviation = total - total.mean(-1, keepdims=True)
    return deviation / np.sqrt((deviation**2).mean(-1, keepdims=True) + EPSILON) * scale + shift


# ---- forward and backward of one layer ----------------------------------------------------------

def gradient_graph(gpu, weight, bias):
    """y, and the gradients of x, weight and bias for y's gradient dy. `ones`: 1 for each row."""
    with gpu.graph() as g:
        x, dy, ones = g.input("x"), g.input("dy"), g.input("ones")
        z = g.linear(x, weight, bias)
        dz = g.fused(SLOPE, z, dy)
        g.output(g.gelu(z), "y")
        g.output(g.matmul(dz, weight), "dx")
        g.output(g.matmul(dz, x, transpose_a=True), "dweight")
        g.output(g.matmul(ones, dz), "dbias")
    return g.build()


def gradient_numpy(x, dy, weight, bias):
    z = x @ weight.T + bias
    dz = dy * gelu_slope(z)
    return gelu(z), dz @ weight, dz.T @ x, dz.sum(axis=0, keepdims=True)


# ---- a picture of the forward pass ---------------------------------------------------------------

def timeline(trace_json):
    """(row, begin, length) of what the last profiled run did, in microseconds since it began.

    Rows: the host's phases by name, "copies", the steps by name, and "clock" for the server's own small kernels.
    """
    events = [event for event in json.loads(trace_json)["traceEvents"] if event["ph"] == "X"]
    run = max((event for event in events if event["name"] == "request graph"), key=lambda event: event["ts"])
    bars = []
    for event in events:
        name, begin = event["name"], event["ts"] - run["ts"]
        if not 0 <= begin <= run["dur"] or name in ("request graph", "job"):
            continue
        step, _, kernel = name.partition(": ")
        on_host = event["pid"] == 1
        row = name if on_host else step if kernel else "copies" if name.startswith("copy") else "clock"
        bars.append((row, begin, event["dur"]))
    return sorted(bars, key=lambda bar: bar[1])


def draw(bars, title, path):
    import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot
    pyplot.rcParams["svg.fonttype"] = "none"  # letters stay letters

    rows = list(dict.fromkeys(row for row, _, _ in bars))
    figure, axes = pyplot.subplots(figsize=(9, 0.8 + 0.26 * len(rows)), layout="constrained")
    for number, row in enumerate(rows):
        color = {"copies": "tab:orange", "clock": "tab:gray"}.get(row, "tab:green" if row.startswith("layer") else
                                                                  "tab:blue")
        spans = [(begin, length) for of, begin, length in bars if of == row]
        axes.broken_barh(spans, (number - 0.4, 0.8), color=color)
        axes.text(max(begin + length for begin, length in spans), number,
                  f" {sum(length for _, length in spans):.1f}", va="center", fontsize=8)
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.margins(x=0.06)
    axes.set(xlabel="microseconds; beside each row the sum of its bars", title=title)
    figure.savefig(path)


def profile_layers(gpu, x, rng, options):
    layers = [(gpu.put(normal(rng, WIDTH, WIDTH, scale=1.4 * WIDTH**-0.5).astype(np.float16), label="mlp"),
               gpu.put(normal(rng, WIDTH, scale=0.1).astype(np.float16), label="mlp"))
              for _ in range(options.layers)]
    profile = forward_graph(gpu, layers).profile(x=x.astype(np.float16), trace=True)
    print(profile)
    title = f"{options.layers} × linear with gelu, {options.rows}×{WIDTH} float16, on {profile.device}"
    draw(timeline(profile.trace_json), title, options.profile)
    gpu.free(*(tensor for layer in layers for tensor in layer))


# ---- the program --------------------------------------------------------------------------------

def difference(results, expected):
    """The largest difference, in units of each result's largest value."""
    return max(float(np.abs(got - want).max() / np.abs(want).max())
               for got, want in zip(results, expected, strict=True))


def doubles(*arrays):
    return [array.astype(np.float64) for array in arrays]


def calls_per_second(call, seconds):
    call()
    count, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < seconds:
        call()
        count += 1
    return count / (time.perf_counter() - begin)


def run_layers(gpu, x, rng, options):
    layers = [(normal(rng, WIDTH, WIDTH, scale=1.4 * WIDTH**-0.5), normal(rng, WIDTH, scale=0.1))
              for _ in range(options.layers)]
    resident = [(gpu.put(weight, label="mlp"), gpu.put(bias, label="mlp")) for weight, bias in layers]
    forward = forward_graph(gpu, resident)
    y = forward(x=x, step_times=True)
    print(y.steps)
    off = difference([y], [forward_numpy(x.astype(np.float64), [doubles(*layer) for layer in layers])])
    row = x[:1]
    graph = calls_per_second(lambda: forward(x=row), options.seconds)
    calls = calls_per_second(lambda: forward_calls(gpu, row, resident), options.seconds)
    sent = calls_per_second(lambda: forward_sent(gpu, row, layers), options.seconds)
    print(f"{options.layers} layers of 1 row: {graph:.0f} passes/s by a graph, {calls:.0f} by a call for each layer,"
          f" {sent:.1f} with weights sent: a graph does {graph / calls:.1f} and {graph / sent:.0f} times as many")
    gpu.free(*(tensor for layer in resident for tensor in layer))
    return off


def run_block(gpu, x, rng):
    weights = [normal(rng, HIDDEN, WIDTH, scale=WIDTH**-0.5), normal(rng, HIDDEN, scale=0.1),
               normal(rng, WIDTH, HIDDEN, scale=HIDDEN**-0.5), normal(rng, WIDTH, scale=0.1),
               1 + normal(rng, WIDTH, scale=0.1), normal(rng, WIDTH, scale=0.1)]
    resident = [gpu.put(weight, label="mlp") for weight in weights]
    off = difference([block_graph(gpu, *resident)(x=x)], [block_numpy(*doubles(x, *weights))])
    gpu.free(*resident)
    return off


def run_gradient(gpu, x, rng):
    weight, bias = normal(rng, WIDTH, WIDTH, scale=WIDTH**-0.5), normal(rng, WIDTH, scale=0.1)
    dy, ones = normal(rng, *x.shape), np.ones((1, len(x)), np.float32)
    with gpu.put(weight, label="mlp") as w, gpu.put(bias, label="mlp") as b:
        results = gradient_graph(gpu, w, b)(x=x, dy=dy, ones=ones)
    return difference(results, gradient_numpy(*doubles(x, dy, weight, bias)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", help="default: $WARPCALL_SERVER, or 127.0.0.1:8470")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--rows", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=2, help="for each measurement")
    parser.add_argument("--profile", metavar="FILE.svg", help="draw one forward pass in float16")
    options = parser.parse_args()
    rng = np.random.default_rng(SEED)
    x = normal(rng, options.rows, WIDTH)
    with warpcall.connect(options.server, timeout=60) as gpu:
        off = {"forward": run_layers(gpu, x, rng, options), "block": run_block(gpu, x, rng),
               "gradient": run_gradient(gpu, x, rng)}
        if options.profile:
            profile_layers(gpu, x, rng, options)
    for name, largest in off.items():
        print(f"{name}: largest difference from NumPy {largest:.1e} of the largest value, allowed {DIFFERENCE_MAX:.0e}")
    return 0 if max(off.values()) <= DIFFERENCE_MAX else 1


if __name__ == "__main__":
    sys.exit(main())
