"""The tables of peers in BENCHMARKS.md, from the logs of run.sh's steps `peers` and `peers_settled`:

    peers_table.py PEERS_BENCH.LOG PEERS.LOG
    peers_table.py --settled PEERS_SETTLED_BENCH.LOG PEERS_SETTLED.LOG

A row is Warpcall's fastest kernel of its own for a problem, in CUDA or generated at run time, beside the fastest of
each group of peers, or with --settled the fastest peer; Warpcall's rows in Triton's language and of libraries count
with those peers. A table is of one method: logs of the other are refused. A settled run may leave out problems: the
table's last line names them.
"""

import pathlib
import re
import sys

from table import LIBRARY, MANUAL, TRITON, lines_that_begin, read

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bench")]
from peers_problems import POWER_BOUND, PROBLEMS, PRODUCTS

OTHERS = ["quack", "flashinfer", "flash_attn"]
NAMES = dict(PROBLEMS)
# Column -> names of its peers in the two logs.
PEERS = {
    "torch": ["torch"],
    "torch.compile": ["torch.compile"],
    "Triton": ["triton", *sorted(TRITON)],
    "cuBLASLt, cuDNN": ["cublaslt", "(cuBLASLt directly)", *sorted(LIBRARY - {"cublaslt", "device_memcpy"})],
    "QuACK, FlashInfer, flash-attention": OTHERS,
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


def shares_of(ceiling, path):
    """Problem -> row -> percent of "multiply-adds" or "reads" of the same run."""
    shares, problem = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            if share := re.match(r"  (\S+) .* ([\d.]+) % of " + ceiling, line):
                shares[problem][share.group(1)] = float(share.group(2))
            elif not line.startswith(" "):
                problem = line.strip()
                shares[problem] = {}
    return shares


def loads(path):
    """Problem -> row -> (MHz, W, mJ of a launch, TFLOP/s per GHz) of a settled log; 0 mJ: unknown."""
    found, problem = {}, None
    with open(path, encoding="utf-8") as file:
        for line in file:
            load = re.match(r"  (\(cuBLASLt directly\)|\S+) .* (\d+) MHz +([\d.]+) W +([\d.]+) mJ +([\d.]+) TFLOP/s per",
                            line)
            if load:
                found[problem][load.group(1)] = tuple(float(load.group(i)) for i in (2, 3, 4, 5))
            elif not line.startswith(" "):
                problem = line.strip()
                found[problem] = {}
    return found


def check_method(path, method):
    methods = lines_that_begin(path, "method: ")
    if not methods or set(methods) != {f"method: {method}"}:
        raise SystemExit(f"{path} has {', '.join(methods) or 'no method'}; it must have method: {method}")


def footer(bench_log, peers_log, left_out=()):
    """The run, below its table; once what the logs of several calls repeat."""
    return "; ".join(dict.fromkeys(lines_that_begin(peers_log, "peers: ", "missing: ", "method: ")
                                   + lines_that_begin(bench_log, "conditions: ")
                                   + [f"not measured: {NAMES[problem]}" for problem in left_out])) + "."


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
    """The row's share of the problem's bound. `shares`: by ceiling, as shares_of has them."""
    copied = ours[row][1]
    arithmetic, reads = (shares[ceiling].get(problem, {}).get(row) for ceiling in ("multiply-adds", "reads"))
    # A product of few rows is bound by the bytes that it moves.
    if arithmetic is not None and problem.split(" ")[0] in PRODUCTS and arithmetic > copied:
        return f"{arithmetic:.0f} % of multiply-adds"
    return f"{copied:.0f} % of copy" if reads is None else f"{reads:.0f} % of reads"


def measured(logs, method, problems):
    """(problem, our rows, the peers' rows) for each problem of the two logs, which must be of the method."""
    for log in logs:
        check_method(log, method)
    ours_of, peers_of = (read(log) for log in logs)
    for problem in problems:
        ours, peers = ours_of.get(problem), peers_of.get(problem)
        if not ours or peers is None:
            raise SystemExit(f"{problem!r} is missing in {logs[1] if ours else logs[0]}")
        yield problem, ours, peers


def table(bench_log, peers_log):
    """Its lines."""
    results = list(measured((bench_log, peers_log), "burst", [problem for problem, _ in PROBLEMS]))
    shares = {ceiling: shares_of(ceiling, bench_log) for ceiling in ("multiply-adds", "reads")}
    refused_of = refusals(peers_log)
    there = {name for _, _, peers in results for name in peers}
    columns = {column: names for column, names in PEERS.items()
               if names is not OTHERS or there.intersection(names)}
    yield "| problem | Warpcall | µs | of its ceiling | " + " | ".join(columns) + " | the best of them over Warpcall |"
    yield "|---" * (5 + len(columns)) + "|"
    for problem, ours, peers in results:
        refused = refused_of.get(problem, {})
        # cuBLASLt has one name for PyTorch's call and for the row's: the faster counts.
        rows = {**ours, **{peer: min(result, ours.get(peer, result)) for peer, result in peers.items()}}
        own = own_of(ours)
        best = fastest(rows, [peer for names in columns.values() for peer in names])
        yield " | ".join([
            f"| {NAMES[problem]}", *(([own[1], f"{own[0]:.1f}", ceiling_of(problem, own[1], ours, shares)] if own
                            else ["–", "–", "–"])),
            *(cell(rows, refused, names) for names in columns.values()),
            (f"{best[0] / own[0]:.2f}" if own and best else "–") + " |"])
    yield ""
    yield footer(bench_log, peers_log)


def load_cells(us, load):
    """µs, MHz and mJ; what is not known is a dash."""
    return [f"{us:.1f}", f"{load[0]:.0f}" if load else "–", f"{load[2]:.2f}" if load and load[2] else "–"]


def settled_table(bench_log, peers_log):
    """Its lines."""
    shares, our_loads, peer_loads = shares_of("multiply-adds", bench_log), loads(bench_log), loads(peers_log)
    problems = [problem for problem in POWER_BOUND if problem in our_loads or problem in peer_loads]
    yield ("| problem | Warpcall | µs | MHz | W | mJ | TFLOP/s per GHz | of multiply-adds | best peer | µs | MHz | mJ "
           "| its time over ours | its energy over ours |")
    yield "|---" * 14 + "|"
    for problem, ours, peers in measured((bench_log, peers_log), "settled", problems):
        own = own_of(ours)
        rivals = [(us, name, our_loads[problem].get(name)) for name, (us, *_) in ours.items() if not own or name != own[1]]
        rivals += [(us, name, peer_loads[problem].get(name)) for name, (us, *_) in peers.items()]
        if not own or not rivals:
            raise SystemExit(f"{problem!r} has no {'peer' if own else 'kernel of our own'}")
        load, best = our_loads[problem].get(own[1]), min(rivals, key=lambda rival: rival[0])
        us, mhz, mj = load_cells(own[0], load)
        knows_energy = load and load[2] and best[2] and best[2][2]
        share = shares[problem].get(own[1])
        yield " | ".join([
            f"| {NAMES[problem]}", own[1], us, mhz, f"{load[1]:.0f}" if load else "–", mj,
            f"{load[3]:.3f}" if load else "–", f"{share:.1f} %" if share else "–",
            best[1], *load_cells(best[0], best[2]), f"{best[0] / own[0]:.3f}",
            (f"{best[2][2] / load[2]:.3f}" if knows_energy else "–") + " |"])
    yield ""
    yield footer(bench_log, peers_log, [problem for problem in POWER_BOUND if problem not in problems])


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--settled", bench, peers]:
            print("\n".join(settled_table(bench, peers)))
        case [bench, peers]:
            print("\n".join(table(bench, peers)))
        case _:
            sys.exit(__doc__)
