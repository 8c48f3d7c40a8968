"""The table of peers in BENCHMARKS.md, from the logs of run.sh's step `peers`: peers_table.py PEERS_BENCH.LOG PEERS.LOG

A row is Warpcall's fastest kernel of its own for a problem, in CUDA or generated at run time, beside the fastest of
each group of peers; Warpcall's rows in Triton's language and of libraries count with those peers.
"""

import pathlib
import re
import sys

from table import COMPILED, LIBRARY, MANUAL, TRITON, read

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bench")]
from peers_problems import PROBLEMS, PRODUCTS

OTHERS = ["quack", "flash_attn"]
# Column -> names of its peers in the two logs.
PEERS = {
    "torch": ["torch"],
    "torch.compile": ["torch.compile"],
    "Triton": ["triton", *sorted(TRITON)],
    "cuBLASLt, cuDNN": ["cublaslt", "(cuBLASLt directly)", *sorted(LIBRARY - {"cublaslt", "device_memcpy"})],
    "QuACK, flash-attention": OTHERS,
}


def refusals(path):
    """Problem -> peer -> why it was not measured."""
    found, problem = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if refusal := re.match(r"  (\S+) +not measured: (.*)", line):
                found[problem][refusal.group(1)] = refusal.group(2)
            elif not line.startswith(" "):
                problem = line.strip()
                found[problem] = {}
    return found


def arithmetic_shares(path):
    """Problem -> row -> percent of the multiply-adds of the same run."""
    shares, problem = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if share := re.match(r"  (\S+) .* ([\d.]+) % of multiply-adds", line):
                shares[problem][share.group(1)] = float(share.group(2))
            elif not line.startswith(" "):
                problem = line.strip()
                shares[problem] = {}
    return shares


def lines_that_begin(path, *beginnings):
    with open(path, encoding="utf-8") as file:
        return [line.strip() for line in file if line.startswith(beginnings)]


def fastest(rows, names):
    """(microseconds, name), or None."""
    return min(((rows[name][0], name) for name in names if name in rows), default=None)


def cell(rows, refused, names):
    """A group's best time, or whether it does not take the problem."""
    if best := fastest(rows, names):
        return f"{best[0]:.1f}"
    reasons = [refused[name] for name in names if name in refused]
    if any(reason.startswith("wrong") for reason in reasons):
        return "wrong"
    return "not taken" if reasons else "–"


def own_of(ours):
    return fastest(ours, [name for name in ours if name[0] != "("
                          and name not in LIBRARY | MANUAL | TRITON])


def ceiling_of(problem, row, ours, shares):
    """The row's share of the problem's bound."""
    share = shares.get(problem, {}).get(row)
    copied = ours[row][1]
    # A product of few rows is bound by the bytes that it moves.
    if share is not None and problem.split(" ")[0] in PRODUCTS and share > copied:
        return f"{share:.0f} % of multiply-adds"
    return f"{copied:.0f} % of copy"


def table(bench_log, peers_log):
    """Its lines."""
    ours_of, peers_of = read(bench_log), read(peers_log)
    shares, refused_of = arithmetic_shares(bench_log), refusals(peers_log)
    measured = {name for rows in peers_of.values() for name in rows}
    columns = {column: names for column, names in PEERS.items()
               if names is not OTHERS or measured.intersection(names)}
    yield "| problem | Warpcall | µs | of its ceiling | " + " | ".join(columns) + " | the best of them over Warpcall |"
    yield "|---" * (5 + len(columns)) + "|"
    for problem, name in PROBLEMS:
        ours, peers, refused = ours_of.get(problem), peers_of.get(problem), refused_of.get(problem, {})
        if not ours or peers is None:
            raise SystemExit(f"{problem!r} is missing in {peers_log if ours else bench_log}")
        # cuBLASLt has one name for PyTorch's call and for the row's: the faster counts.
        rows = {**ours, **{peer: min(result, ours.get(peer, result)) for peer, result in peers.items()}}
        own = own_of(ours)
        best = fastest(rows, [peer for names in columns.values() for peer in names])
        yield " | ".join([
            f"| {name}", *(([own[1], f"{own[0]:.1f}", ceiling_of(problem, own[1], ours, shares)] if own
                            else ["–", "–", "–"])),
            *(cell(rows, refused, names) for names in columns.values()),
            (f"{best[0] / own[0]:.2f}" if own and best else "–") + " |"])
    yield ""
    yield "; ".join(lines_that_begin(peers_log, "peers: ", "missing: ")
                    + lines_that_begin(bench_log, "conditions: ")) + "."


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print("\n".join(table(*sys.argv[1:])))
