"""The lesson that this project comes from: one formula, written in five ways, and why some are
many times as fast. gelu and softmax by each family of implementations that the server has, in one
table and one picture.

    python lesson.py [--server ADDRESS] [--shape 4096x4096] [--dtype float32] [--plot lesson.svg]

    manual      the unfused chain: each elementary operation is a pass of its own over memory
    library     the vendor's: oneDNN on the CPU, cuDNN on a GPU
    cuda        written by hand, fused
    triton      the same in Triton's language, compiled when the server was built
    compiled    generated from the formula and compiled at run time

A server without a GPU has cpu, vectorised C++, in the place of the last three.

"least B" is what the formula needs, in bytes an element: the inputs read once, the output written
once. "as a copy B" is how much a plain copy moves in the time that the implementation took: near
"least B" it does nothing but move its bytes; the chain is as slow as a copy of everything that its
passes read and write again.
"""

import argparse
import sys

import warpcall

FAMILIES = ("manual", "library", "cpu", "cuda", "triton", "compiled")
KERNELS = ("gelu", "softmax")


def fastest(report: warpcall.Benchmark) -> dict[str, warpcall.BenchmarkRow]:
    """The best row of each family, in FAMILIES' order."""
    best: dict[str, warpcall.BenchmarkRow] = {}
    for row in sorted(report.rows, key=lambda row: row.median_ns, reverse=True):
        if not row.error:
            best[row.family] = row
    return {family: best[family] for family in FAMILIES if family in best}


def lines(report: warpcall.Benchmark, elements: int) -> list[list[str]]:
    """A table's rows: the families' best, against the chain."""
    best = fastest(report)
    (ceiling,) = report.ceilings.values()
    chain = best.get("manual")
    return [
        [
            report.kernel,
            family,
            row.launch.variant,
            f"{row.median_ns / 1e3:.1f}",
            f"{row.bytes_per_second / 1e9:.2f}",
            f"{chain.median_ns / row.median_ns:.1f}" if chain else "",
            f"{row.launch.bytes_moved / elements:.1f}",
            f"{row.median_ns / 1e9 * ceiling / elements:.1f}",
        ]
        for family, row in best.items()
    ]


def table(rows: list[list[str]]) -> str:
    """Columns of text, the first three to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    aligned = [
        [cell.ljust(width) if i < 3 else cell.rjust(width) for i, (cell, width) in pairs]
        for pairs in (enumerate(zip(row, widths, strict=True)) for row in rows)
    ]
    return "\n".join("  ".join(row).rstrip() for row in aligned)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--server")
    parser.add_argument("--shape", default="4096x4096")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="")
    parser.add_argument("--iterations", type=int, default=0)
    parser.add_argument("--plot", default="lesson.svg", metavar="FILE.svg")
    options = parser.parse_args()
    with warpcall.connect(options.server) as gpu:
        reports = [
            gpu.benchmark(
                kernel,
                options.shape,
                dtype=options.dtype,
                device=options.device,
                iterations=options.iterations,
                progress=sys.stderr.isatty(),
            )
            for kernel in KERNELS
        ]
        missing = [family for family in FAMILIES if not any(family in fastest(r) for r in reports)]
    elements = 1
    for size in options.shape.split("x"):
        elements *= int(size)
    if elements == 0:
        parser.error("--shape has no elements")
    header = ["kernel", "family", "implementation", "µs", "GB/s", "x the chain"]
    rows = [line for report in reports for line in lines(report, elements)]
    print(f"{options.shape} of {options.dtype} on {reports[0].device}; each family's fastest\n")
    print(table([[*header, "least B", "as a copy B"], *rows]))
    if missing:
        print(f"\nnot on this server, or not for this problem: {', '.join(missing)}")
    for report in reports:
        best = {row.implementation for row in fastest(report).values()}
        report.rows = [row for row in report.rows if row.implementation in best]
    warpcall.plot(*reports, path=options.plot)
    print(f"\n{options.plot} shows the medians")
    return 0


if __name__ == "__main__":
    sys.exit(main())
