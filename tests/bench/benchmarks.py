#!/usr/bin/env python3
"""Keeps BENCHMARKS.md and README.md's excerpts of it consistent.

    benchmarks.py put TABLE < OUTPUT   puts a benchmark's output into BENCHMARKS.md, then draws
    benchmarks.py draw                 makes docs/speed.svg and README's figures from BENCHMARKS.md
    benchmarks.py check                exit status 1 where `draw` would change something

TABLE is transport, transport-gpu, serving, perf-analyzer, python, cpu-kernels, gpu-kernels, peers, peers-h100,
peers-settled or graphs; BENCHMARKS.md says which program's output each takes.
"""

import json
import pathlib
import re
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2]
# The problems of the picture: names in the table of peers, and names in the picture.
PICTURED = [
    ("gelu none, 2^28 bfloat16", "gelu (erf) of 2^28 bfloat16"),
    ("softmax 65536×1024 bfloat16", "softmax of 65536×1024 bfloat16"),
    ("matmul 4096³ bfloat16", "matmul 4096³ bfloat16"),
]
# README's problems, as the table of peers names them.
SHOWN = ["gelu none, 2^28 bfloat16", "softmax 65536×1024 bfloat16", "softmax 4096×65536 bfloat16",
         "matmul 4096³ bfloat16"]
# The columns of that table that are no peer's.
NO_PEERS = ["Warpcall", "µs", "of its ceiling", "the best of them over Warpcall"]
# The CPU table: warpcall_kernel_bench's name of a problem and our implementation, and the table's name.
CPU_KERNELS = [
    ("gelu/simd_fused/float32[16777216]/approximate=tanh", "gelu tanh, 2^24 float32"),
    ("gelu/simd_fused/float32[16777216]/approximate=none", "gelu none, 2^24 float32"),
    ("softmax/simd_rows/float32[4096,4096]/axis=-1", "softmax 4096×4096 float32"),
    ("softmax/simd_rows/float32[65536,256]/axis=-1", "softmax 65536×256 float32"),
]


def between(text, name, new=None):
    """Returns the text between the markers of `name`; or the whole text with `new` in its place."""
    pattern = re.compile(rf"(<!-- begin {name} -->\n)(.*?)(\n<!-- end {name} -->)", re.DOTALL)
    match = pattern.search(text)
    if match is None:
        sys.exit(f"there is no '<!-- begin {name} -->' with its end")
    return match.group(2) if new is None else text[:match.end(1)] + new + text[match.start(3):]


def cpu_table(output):
    """Makes the table from the JSON of warpcall_kernel_bench."""
    results = json.loads(output)["benchmarks"]
    lines = ["| problem | cpu | times as fast as library |", "|---|---|---|"]
    for begin, name in CPU_KERNELS:
        ratio = next(r["vs_onednn"] for r in results if r["name"].startswith(begin))
        lines.append(f"| {name} | {begin.split('/')[1]} | {ratio:.1f} |")
    return "\n".join(lines)


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def rows_of(benchmarks, name):
    """Problem -> its other cells, of the table between the markers."""
    lines = between(benchmarks, name).splitlines()[2:]
    return {row[0]: row[1:] for row in (cells(line) for line in lines if line.startswith("|"))}


def peers_of(benchmarks):
    """Problem -> column -> cell, of the table of peers."""
    head = cells(between(benchmarks, "peers").splitlines()[0])[1:]
    return {problem: dict(zip(head, row)) for problem, row in rows_of(benchmarks, "peers").items()}


def peers_in(row):
    return [column for column in row if column not in NO_PEERS]


def serving_ratios(benchmarks):
    """How many times as fast as its peer the server is at least, by p50, on which other work has less influence
    than on rates: at 4 KiB, and from 1 MiB on."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")]
            for line in between(benchmarks, "serving").split("\n\n")[0].splitlines()[2:]]
    small = [row for row in rows if row[0].startswith("4 KiB,")]
    large = [row for row in rows if row not in small]
    return tuple(min(float(row[6]) for row in part) for part in (small, large))


def figures(rows, ratios):
    """README's table of kernels on a GPU, and its figures about the server's peer."""
    peers = peers_in(rows[SHOWN[0]])
    yield f"| on one H200, µs | Warpcall | {' | '.join(peers)} |"
    yield "|---" * (2 + len(peers)) + "|"
    for problem in SHOWN:
        row = rows[problem]
        shown = [row["µs"], *(row[peer] for peer in peers)]
        yield f"| {problem}: {row['of its ceiling']} | {' | '.join(shown)} |"
    yield ""
    yield (f"On the CPU, by p50, Warpcall is at least **{ratios[0]:.1f} times** (4 KiB) and **{ratios[1]:.1f} times** "
           "(1 MiB and more) as fast as NumPy models in the Python backend of NVIDIA's Triton Inference Server.")


# ---- the picture -----------------------------------------------------------------------------------

WIDTH, LEFT, BAR_WIDTH, BAR, PANEL = 760, 250, 380, 16, 132
OURS, THEIRS = "#1f6feb", "#8b949e"


def text(x, y, content, more=""):
    return f'<text x="{x}" y="{y}"{more}>{content}</text>'


def panel(top, title, row):
    """Bars of one problem: each one's speed as a share of the fastest's. A peer without a time has no bar."""
    bars = [(f"Warpcall: {row['Warpcall']}", row["µs"], OURS), *((peer, row[peer], THEIRS) for peer in peers_in(row))]
    bars = [bar for bar in bars if re.fullmatch(r"[\d.]+", bar[1])]
    fastest = min(float(us) for _, us, _ in bars)
    yield text(0, top, title, ' font-weight="bold"')
    for index, (name, us, color) in enumerate(bars):
        y = top + 8 + index * (BAR + 4)
        width = max(1, round(BAR_WIDTH * fastest / float(us)))
        yield text(LEFT - 8, y + 12, name, ' text-anchor="end"')
        yield f'<rect x="{LEFT}" y="{y}" width="{width}" height="{BAR}" fill="{color}"/>'
        yield text(LEFT + width + 6, y + 12, f"{float(us):,.0f} µs".replace(",", " "))


def picture(rows):
    height = 40 + PANEL * len(PICTURED)
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-12 -12 {WIDTH} {height}" '
             f'width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12" fill="#24292f">',
             f'<rect x="-12" y="-12" width="{WIDTH}" height="{height}" fill="#ffffff"/>',
             text(0, 8, "Kernels on one H200: longer bars are faster, times are medians", ' fill="#57606a"')]
    for index, (problem, title) in enumerate(PICTURED):
        lines += panel(36 + PANEL * index, title, rows[problem])
    return "\n".join(lines + ["</svg>", ""])


# ---- files -----------------------------------------------------------------------------------------

def drawn(folder):
    """The files that `draw` makes, and their content."""
    benchmarks = (folder / "BENCHMARKS.md").read_text(encoding="utf-8")
    rows, ratios = peers_of(benchmarks), serving_ratios(benchmarks)
    readme = folder / "README.md"
    text = "\n".join(figures(rows, ratios))
    return {folder / "docs/speed.svg": picture(rows),
            readme: between(readme.read_text(encoding="utf-8"), "figures", text)}


def draw(folder):
    for path, content in drawn(folder).items():
        path.write_text(content, encoding="utf-8")


def put(folder, table, output):
    path = folder / "BENCHMARKS.md"
    new = cpu_table(output) if table == "cpu-kernels" else output.strip("\n")
    if not new.startswith("|"):
        sys.exit(f"this is no output for {table}: it begins with {new[:40]!r}")
    path.write_text(between(path.read_text(encoding="utf-8"), table, new), encoding="utf-8")
    draw(folder)


def check(folder):
    stale = [path for path, content in drawn(folder).items()
             if path.read_text(encoding="utf-8") != content]
    if stale:
        sys.exit(f"not as BENCHMARKS.md says: {', '.join(path.name for path in stale)}; run "
                 "python3 tests/bench/benchmarks.py draw")


def main():
    match sys.argv[1:]:
        case ["put", table]:
            put(FOLDER, table, sys.stdin.read())
        case ["draw"]:
            draw(FOLDER)
        case ["check"]:
            check(FOLDER)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
