"""The package's command.

    python -m warpcall bench gelu --shape 4096x4096 --dtype bfloat16 --plot gelu.svg
    python -m warpcall profile softmax --shape 4096x4096 --trace trace.json
    python -m warpcall push softmax.cu --shape 4096x4096
    python -m warpcall kernels

Exit status: 0 success, 1 server refused or was not reached, 2 usage error, 3 a push was judged and
did not pass, 4 this server cannot judge it, 5 the server failed to judge it: push it again, 130
interrupted. A benchmark or push that ends early prints its results so far. --json prints JSON,
errors as one line on stderr; that of a push is that of `warpcall push --json`.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import sys
from typing import Any

from . import Benchmark, Client, Error, InvalidArgument, Push, Unavailable, __version__, connect
from ._channel import DEFAULT_ADDRESS, SERVER_VARIABLE
from ._format import table
from ._push import PushOptions, encode_push, facts_of, manifest_in

# Exit statuses, as those of `warpcall push`.
_USAGE, _NOT_PASSED = 2, 3
_NOT_JUDGED = {"NOT_SUPPORTED": 4, "INTERNAL_ERROR": 5}
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
    push = commands.add_parser("push", help="compile, check and time a kernel of your own")
    push.add_argument("source", metavar="FILE.cu")
    push.add_argument("--manifest", metavar="FILE.json", help="default: FILE.cu's first comment")
    push.add_argument("--iterations", type=int, default=0)
    push.add_argument("--seed", type=int, default=0, help="repeat the run with this seed")
    push.add_argument("--compare-with", action="append", default=[], metavar="IMPLEMENTATION")
    push.add_argument("--check-only", action="store_true", help="do not time it")
    push.add_argument("--fresh", action="store_true", help="judge it again")
    for command in (bench, profile):
        command.add_argument("kernel")
        command.add_argument("--implementation", action="append", default=[])
        command.add_argument("--dtype", "--type", default="float32")
    for command in (bench, profile, push):
        required = command is not push
        command.add_argument("--shape", action="append", required=required, metavar="4096x1024")
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


def _push(client: Client, options: argparse.Namespace) -> Push:
    return client.push(
        options.code,
        manifest=options.manifest_json,
        problems=options.shape,
        compare_with=options.compare_with,
        check_only=options.check_only,
        iterations=options.iterations,
        seed=options.seed,
        device=options.device,
        fresh=options.fresh,
    )


def _read_push(options: argparse.Namespace) -> None:
    """Reads the files of a push. Raises InvalidArgument for what the server would not read."""
    options.code = pathlib.Path(options.source).read_bytes()
    options.manifest_json = None
    if options.manifest:
        options.manifest_json = pathlib.Path(options.manifest).read_text(errors="replace")
    elif not manifest_in(options.code.decode(errors="replace")):
        raise InvalidArgument(
            f"{options.source} does not begin with a manifest; or give --manifest FILE.json"
        )
    encode_push(
        options.code, options.manifest_json, options.shape, options.compare_with, PushOptions()
    )


def _push_json(report: Push, options: argparse.Namespace, error: BaseException | None) -> object:
    """As client/cli/push/report.h says."""
    facts = facts_of(options.manifest_json or "", options.code)
    said = None
    if error is not None:
        said = _error_json(error)
    return {
        "file": options.source,
        "name": facts.get("name"),
        "op": facts.get("op"),
        "client_version": __version__,
        "server": {"address": options.address},
        **report.to_dict(),
        "error": said,
        "exit_status": _status_of(report if error is None else error),
    }


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


def _show_report(
    report: Benchmark | Push, options: argparse.Namespace, error: BaseException | None = None
) -> None:
    if isinstance(report, Push):
        _show((repr(report), _push_json(report, options, error)), options)
        return
    _show((repr(report), report.to_dict()), options)
    # Last: what was measured is not lost with a file that cannot be written.
    if options.plot:
        report.plot(options.plot)


def _status_of(end: Push | BaseException) -> int:
    """The exit status of a command that ended so."""
    if isinstance(end, KeyboardInterrupt):
        return _INTERRUPTED
    if not isinstance(end, Push):
        return 1
    if end.passed:
        return 0
    return _NOT_JUDGED.get(end.status, _NOT_PASSED)


def _code_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "CANCELLED"
    return error.code if isinstance(error, Error) else "UNKNOWN"


def _message_of(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return error.message if isinstance(error, Error) else str(error)


def _error_json(error: BaseException) -> dict[str, Any]:
    """As `warpcall --json` has it: whether the same call may succeed later, and the log's id."""
    after = error.retry_after if isinstance(error, Error) else None
    return {
        "code": _code_of(error),
        "message": _message_of(error),
        "retryable": after is not None or isinstance(error, Unavailable),
        "retry_after_ms": None if after is None else round(after * 1000),
        "request_id": (isinstance(error, Error) and error.request_id) or None,
    }


def _fail(error: BaseException, options: argparse.Namespace, status: int) -> int:
    """Prints why the command ended. Returns `status`."""
    if options.json:
        said = {**_error_json(error), "exit_status": status}
        print(json.dumps({"error": said}), file=sys.stderr)
    else:
        print(str(error) or _message_of(error), file=sys.stderr)
    return status


def main() -> int:
    options = _parser().parse_args()
    options.address = options.server or os.environ.get(SERVER_VARIABLE) or DEFAULT_ADDRESS
    try:
        if options.command == "push":
            _read_push(options)
    except (InvalidArgument, OSError) as error:
        return _fail(error, options, _USAGE)
    try:
        with connect(options.address) as client:
            if options.command == "bench":
                _show_report(_bench(client, options), options)
            elif options.command == "push":
                report = _push(client, options)
                _show_report(report, options)
                return _status_of(report)
            else:
                _show(_run(client, options), options)
    except (Error, KeyboardInterrupt) as error:
        so_far: Benchmark | Push | None = getattr(error, "report", None)
        if so_far is not None and (so_far.events if isinstance(so_far, Push) else so_far.rows):
            with contextlib.suppress(OSError):  # the call's own end is what counts
                _show_report(so_far, options, error)
        return _fail(error, options, _status_of(error))
    except OSError as error:  # a file that was to be written
        return _fail(error, options, 1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
