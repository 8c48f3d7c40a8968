"""The table of kernels on a GPU in BENCHMARKS.md, from the output of warpcall_cuda_kernel_bench: table.py BENCH.LOG"""

import re
import sys

# Rows of the table: the problem as the benchmark prints it, and its name there.
PROBLEMS = [
    ("gelu float32 268435456", "gelu tanh, 2^28 float32"),
    ("gelu float16 268435456", "gelu tanh, 2^28 float16"),
    ("gelu bfloat16 268435456", "gelu tanh, 2^28 bfloat16"),
    ("gelu bfloat16 268435456 approximate=none", "gelu none, 2^28 bfloat16"),
    ("softmax float32 65536x256", "softmax 65536×256 float32"),
    ("softmax float32 65536x1024", "softmax 65536×1024 float32"),
    ("softmax float32 32768x4096", "softmax 32768×4096 float32"),
    ("softmax float32 16384x16384", "softmax 16384×16384 float32"),
    ("softmax bfloat16 65536x1024", "softmax 65536×1024 bfloat16"),
    ("softmax bfloat16 32768x4096", "softmax 32768×4096 bfloat16"),
    ("softmax bfloat16 16384x16384", "softmax 16384×16384 bfloat16"),
    ("softmax bfloat16 8x262144", "softmax 8×262144 bfloat16"),
    ("matmul float32 4096x4096 4096x4096", "matmul 4096³ float32"),
    ("matmul bfloat16 4096x4096 4096x4096", "matmul 4096³ bfloat16"),
    ("matmul float32 4096x4096 4096x4096 precision=tf32", "matmul 4096³ tf32"),
    ("matmul bfloat16 1x8192 8192x8192", "matmul 1×8192×8192 bfloat16"),
]
LIBRARY = {"cudnn_norm", "cudnn_pointwise", "cudnn_softmax", "cublaslt", "device_memcpy"}
MANUAL = {"chain_of_kernels", "thread_per_output", "element_per_thread"}
COMPILED = {"compiled_gelu", "compiled_softmax", "compiled_norm", "compiled_expression"}
TRITON = {"triton_gelu", "triton_softmax", "triton_layernorm", "triton_rmsnorm", "triton_matmul",
          "triton_linear"}


def read(path):
    """Problem -> row -> (microseconds, percent of the copy ceiling, TFLOP/s)."""
    results, problem = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            row = re.match(r"  (\S+|\(cuBLASLt directly\)) +([\d.]+) us .* ([\d.]+) % of copy +([\d.]+) TFLOP", line)
            if row:
                results[problem][row.group(1)] = tuple(float(row.group(i)) for i in (2, 3, 4))
            elif not line.startswith(" "):
                problem = line.strip()
                results[problem] = {}
    return results


def lines_that_begin(path, *beginnings):
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.startswith(beginnings)]


def main():
    results = read(sys.argv[1])
    print("| problem | cuda | us | of its ceiling | library | us | manual | us | triton | us | compiled | us |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for problem, name in PROBLEMS:
        rows = results[problem]
        fastest = lambda names: min((rows[n][0], n) for n in names) if names else None
        own = fastest([n for n in rows if n not in LIBRARY | MANUAL | TRITON | COMPILED and n[0] != "("])
        library, manual, triton, compiled = (fastest([n for n in rows if n in group])
                                             for group in (LIBRARY, MANUAL, TRITON, COMPILED))
        if name.startswith("matmul") and "1×" not in name:
            share = f"{rows[own[1]][2]:.0f} TFLOP/s"
        else:
            share = f"{rows[own[1]][1]:.1f} % of copy"
        cell = lambda pair: f"{pair[1]} | {pair[0]:.1f}" if pair else "– | –"
        print(f"| {name} | {cell(own)} | {share} | {cell(library)} | {cell(manual)} | {cell(triton)} "
              f"| {cell(compiled)} |")
    print("\n" + "; ".join(lines_that_begin(sys.argv[1], "method: ", "conditions: ")) + ".")


if __name__ == "__main__":
    main()
