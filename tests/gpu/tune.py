"""Has a server tune the problems that the benchmarks measure, and leaves its table.

    tune.py PACK OUT [KERNEL...]      CONTRIBUTING.md tells what of OUT is built in

On the machine whose GPU the table is for, with nothing else running on it. A table that is there already is added
to, so that kernels may be tuned one after the other. Prints what was chosen for each problem; exit status 1 when
the server refused one. WARPCALL_TUNE_DEVICE is tuned in place of cuda:0.
"""

import json
import os
import subprocess
import sys

from differential import Server

ROWS = ["262144x64", "65536x256", "65536x512", "65536x1024", "65536x2048", "32768x4096", "16384x8192",
        "16384x16384", "4096x65536", "8x262144", "65536x1023", "32768x4099"]
NORM_ROWS = [(262144, 64), (65536, 256), (65536, 1024), (32768, 4096), (16384, 8192), (16384, 16384)]
# m, n, k.
PRODUCTS = ["1024x1024x1024", "2048x2048x2048", "4096x4096x4096", "8192x8192x8192", "12288x2048x10240",
            "16x4096x4096", "1x8192x8192", "4095x4095x4095"]
SQUARE = "4096x4096"


def problems():
    """The arguments of `warpcall tune`, of each kernel and each of its kinds of attributes."""
    types = ["--type", "f32", "--type", "f16", "--type", "bf16"]
    for approximate in ("tanh", "none"):
        yield ["gelu", *types, "--attribute", f"approximate={approximate}",
               *shapes("65536", "1048576", "16777216", "268435456")]
    yield ["identity", *types, *shapes("16777216", "268435456")]
    yield ["softmax", *types, *shapes(*ROWS)]
    yield ["softmax", *types, "--attribute", "axis=0", *shapes("16384x4096")]
    for m, n in NORM_ROWS:
        yield ["layernorm", *types, *shapes(f"{m}x{n},{n},{n}")]
        yield ["rmsnorm", *types, *shapes(f"{m}x{n},{n}")]
    yield ["matmul", *types, *shapes(*PRODUCTS)]
    for attributes in (["transpose_b=true"], ["transpose_a=true", "transpose_b=true"]):
        named = [word for attribute in attributes for word in ("--attribute", attribute)]
        yield ["matmul", *types, *named, *shapes("4096x4096x4096")]
    yield ["matmul", "--type", "f32", "--attribute", "precision=tf32", *shapes(*PRODUCTS)]
    for activation in ("none", "relu", "gelu", "gelu_erf"):
        yield ["linear", *types, "--attribute", f"activation={activation}",
               *shapes(f"{SQUARE},{SQUARE},4096")]
    for expression in ("gelu(x0 + x1)", "softmax(x0 + x1)"):
        yield ["fused", *types, "--attribute", f"expression={expression}", *shapes("65536x4096,4096")]


def shapes(*texts):
    return [word for text in texts for word in ("--shape", text)]


def tune(pack, server, arguments):
    """Returns True if everything was tuned."""
    programs = os.environ.get("WARPCALL_TEST_BIN_DIR", os.path.join(pack, "bin"))
    done = subprocess.run(
        [os.path.join(programs, "warpcall"), "--server", server.address, "--json", "tune", *arguments, "--device",
         os.environ.get("WARPCALL_TUNE_DEVICE", "cuda:0"), "--max-noise", "0.5"],
        stdout=subprocess.PIPE, text=True, check=False)
    points = json.loads(done.stdout or "{}").get("points", [])
    named = " ".join(word for word in arguments if "=" in word)
    for point in points:
        chosen = point["auto"] or {"implementation": "none", "chosen_because": point["error"]}
        print(arguments[0], named, point["data_type"], point["shape"], chosen["implementation"],
              chosen["chosen_because"], sep="  ", flush=True)
    # The command's exit status is 1 where a row was too slow to have its turn, too.
    return bool(points) and all(point["auto"] for point in points)


def main(pack, out, *kernels):
    with Server(pack, "--tuning_cache", out).await_rows() as server:
        tuned = [tune(pack, server, arguments) for arguments in problems()
                 if not kernels or arguments[0] in kernels]
        stopped = server.stop()
    print(f"{sum(tuned)} of {len(tuned)} kinds of problems were tuned")
    return 0 if tuned and all(tuned) and stopped == 0 else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
