"""The package's command.

    python -m warpcall bench gelu --shape 4096x4096 --dtype bfloat16 --plot gelu.svg
    python -m warpcall profile softmax --shape 4096x4096 --trace trace.json
    python -m warpcall kernels

Exit status: 0 success, 1 server refused or was not reached, 2 usage error, 130 interrupted. A
benchmark that ends early prints its results so far.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys

from . import Benchmark, Client, Error, InvalidArgument, connect
from ._channel import DEFAULT_ADDRESS, SERVER_VARIABLE
from ._format import table

# As a shell says that SIGINT ended a command.
_INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m warpcall", description="Call a Warpcall server."
    )
    parser.add_argument(
        "--server",
        metavar="ADDRESS",
        help=f"host, host:port or unix:/path (default: {SERVER_VARIABLE}, or {DEFAULT_ADDRESS})",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    commands = parser.add_subparsers(dest="command", required=True)
    bench = commands.add_parser("bench", help="time a kernel's implementations side by side")
    bench.add_argument("--iterations", type=int, default=0)
    bench.add_argument("--plot", metavar="FILE.svg")
    profile = commands.add_parser("profile", help="show how a device spends its time on a kernel")
    profile.add_argument("--trace", metavar="FILE.json", help="write a trace for ui.perfetto.dev")
    for command in (bench, profile):
        command.add_argument("kernel")
        command.add_argument("--shape", action="append", required=True, metavar="4096x1024")
        command.add_argument("--dtype", default="float32")
        command.add_argument("--implementation", action="append", default=[])
        command.add_argument("--device", default="")
    commands.add_parser("kernels", help="list kernels, attributes and implementations")
    commands.add_parser("devices", help="list devices and their health")
    return parser


def _bench(client: Client, options: argparse.Namespace) -> Benchmark:
    return client.benchmark(
        options.kernel,
        options.shape,
        dtype=options.dtype,
        implementations=options.implementation,
        device=options.device,
        iterations=options.iterations,
        progress=sys.stderr.isatty(),
    )


def _run(client: Client, options: argparse.Namespace) -> tuple[str, object]:
    """(for people, for programs)."""
    if options.command == "profile":
        if len(options.shape) > 1 or len(options.implementation) > 1:
            raise InvalidArgument("profile takes one --shape and one --implementation")
        profile = client.profile(
            options.kernel,
            options.shape[0],
            dtype=options.dtype,
            implementation="".join(options.implementation),
            device=options.device,
            trace=options.trace or False,
        )
        return repr(profile), profile.to_dict()
    if options.command == "kernels":
        kernels = client.kernels()
        rows = [
            [kernel.name, row.name, row.device_kind, *map(" ".join, (row.data_types, row.variants))]
            for kernel in kernels
            for row in kernel.implementations
        ]
        header = ["kernel", "implementation", "device", "types", "variants"]
        return table(header, rows), [dataclasses.asdict(kernel) for kernel in kernels]
    devices = client.devices()
    rows = [[device.name, device.kind, device.description] for device in devices]
    return table(["device", "kind", "description"], rows), [
        dataclasses.asdict(device) for device in devices
    ]


def _show(said: tuple[str, object], options: argparse.Namespace) -> None:
    text, data = said
    print(json.dumps(data, indent=2) if options.json else text)


def _show_benchmark(report: Benchmark, options: argparse.Namespace) -> None:
    _show((repr(report), report.to_dict()), options)
    if options.plot:  # last: what was measured is not lost with a file that cannot be written
        report.plot(options.plot)


def main() -> int:
    options = _parser().parse_args()
    try:
        with connect(options.server) as client:
            if options.command == "bench":
                _show_benchmark(_bench(client, options), options)
            else:
                _show(_run(client, options), options)
    except (Error, KeyboardInterrupt) as error:
        report: Benchmark | None = getattr(error, "report", None)
        if report is not None and report.rows:
            with contextlib.suppress(OSError):  # the call's own end is what counts
                _show_benchmark(report, options)
        interrupted = isinstance(error, KeyboardInterrupt)
        print("interrupted" if interrupted else error, file=sys.stderr)
        return _INTERRUPTED if interrupted else 1
    except OSError as error:  # a file that was to be written
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
