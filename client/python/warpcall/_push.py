"""Pushes: a kernel that the caller wrote, compiled, checked and timed by the server. Encodes the
request; the events of the answer fill the report."""

from __future__ import annotations

import contextlib
import dataclasses
import html
import json
import math
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, TypeAlias, cast

from . import _wire as wire
from ._benchmark import _is_list
from ._calls import Parts
from ._format import binary_bytes, digits, nanoseconds, printable
from ._inspect import parse_problem
from ._messages import DATA_TYPE_NUMBERS, encode
from ._proto import (
    BenchmarkResponse,
    PushChecked,
    PushCompiled,
    PushMismatch,
    PushProblem,
    PushQueued,
    PushRequest,
    PushTimed,
    PushVerdict,
    RunStamp,
)
from ._reports import Benchmark, BenchmarkRow, Cells, Table, decoded
from ._result import bad_response
from .errors import NO_METHOD, InvalidArgument, PushRejected, Unimplemented

# CUDA C++, or the path of a file that holds it.
Source: TypeAlias = "str | bytes | os.PathLike[str]"
# A dict, JSON, or the path of a file that holds it; None: it stands in the source.
Manifest: TypeAlias = "Mapping[str, Any] | str | os.PathLike[str] | None"

PASSED = "PASSED"
_COMPILE_ERROR = "COMPILE_ERROR"
_OPENING = "// warpcall-kernel {"
_BYTE_ORDER_MARK = "\ufeff"


# ---- the request --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PushOptions:
    """Fields of PushRequest that are sent as they were given."""

    check_only: bool = False
    iterations: int = 0
    seed: int = 0
    device: str = ""
    fresh: bool = False
    with_files: bool = False


def encode_push(
    source: Source,
    manifest: Manifest,
    problems: Any,
    compare_with: str | Sequence[str],
    options: PushOptions,
) -> bytes:
    """A PushRequest. Raises InvalidArgument for a source, manifest or problem that is none, OSError
    for a file that cannot be read."""
    code = source if isinstance(source, bytes) else _read("source", source, "CUDA C++", ".cu")
    text = _read_manifest(manifest)
    names = (compare_with,) if isinstance(compare_with, str) else tuple(compare_with)
    return encode(
        PushRequest(
            text,
            code,
            () if problems is None else _problems_of(problems, facts_of(text, code)),
            compare_with=names,
            **{f.name: getattr(options, f.name) for f in dataclasses.fields(options)},
        )
    )


def _read(name: str, value: object, text: str, end: str) -> bytes:
    """The argument `name`: what a text is, which has a brace, or the bytes of a file."""
    if isinstance(value, str) and "{" in value:
        return value.encode()
    if isinstance(value, os.PathLike) or (isinstance(value, str) and value.endswith(end)):
        with open(cast("str", value), "rb") as file:
            return file.read()
    raise InvalidArgument(
        f"{name} is {value!r:.100}; it must be {text}, or a path that ends in {end}"
    )


def _read_manifest(manifest: Manifest) -> str:
    if manifest is None:
        return ""
    if isinstance(manifest, Mapping):
        try:
            return json.dumps(manifest)
        except TypeError as error:
            raise InvalidArgument(f"manifest: {error}") from None
    return _read("manifest", manifest, "a dict, JSON", ".json").decode(errors="replace")


def facts_of(manifest: str, code: bytes) -> Mapping[str, Any]:
    """The manifest. Empty where it is not readable, which the server's verdict explains."""
    text = manifest or manifest_in(code.decode(errors="replace"))
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return cast("Mapping[str, Any]", facts) if isinstance(facts, dict) else {}


def manifest_in(source: str) -> str:
    """As FindManifest (proto/common/manifest_comment.h)."""
    lines = [line.strip() for line in source.removeprefix(_BYTE_ORDER_MARK).strip().split("\n")]
    if not lines[0].startswith(_OPENING):
        return ""
    text = lines[0][len(_OPENING) - 1 :]
    if text.endswith("}"):
        return text
    for line in lines[1:]:
        text += "\n" + line.removeprefix("//")
        if not line.startswith("//") or line.replace(" ", "") == "//}":
            break
    return text


def _problems_of(problems: Any, manifest: Mapping[str, Any]) -> tuple[PushProblem, ...]:
    """One problem for each item; one for each type of the manifest where an item names no dtype."""
    types: Any = manifest.get("types")
    types = [name for name in DATA_TYPE_NUMBERS if _is_list(types) and name in types]
    found: list[PushProblem] = []
    for item in problems if _is_list(problems) else [problems]:
        attributes: dict[str, Any] = {"shape": item}
        if isinstance(item, Mapping):
            attributes = {**cast("Mapping[str, Any]", item)}
        if "shape" not in attributes:
            raise InvalidArgument(f"problem {item!r:.100} has no shape")
        shape, dtype = attributes.pop("shape"), attributes.pop("dtype", None)
        for name in types or ["float32"] if dtype is None else [dtype]:
            inputs = parse_problem(str(manifest.get("op")), shape, name).inputs
            found.append(PushProblem(inputs, attributes))
    return tuple(found)


# ---- events -------------------------------------------------------------------------------------


def label_of(problem: PushProblem) -> str:
    """ "4096x1024 float32 axis=-1"."""
    shapes = "*".join("x".join(map(str, spec.shape)) for spec in problem.inputs)
    types = dict.fromkeys(spec.data_type for spec in problem.inputs)
    attributes = [f"{name}={value}" for name, value in problem.attributes.items()]
    return " ".join([shapes, *types, *attributes])


@dataclasses.dataclass(frozen=True)
class PushCheck(PushChecked):
    """A problem on which the kernel was checked."""

    @property
    def label(self) -> str:
        """The problem: "4096x1024 float32 axis=-1"."""
        return label_of(self.problem)

    @property
    def mismatch(self) -> PushMismatch | None:
        """The first wrong element; None if the output is right, or something else failed."""
        return None if self.first == PushMismatch() else self.first


@dataclasses.dataclass(frozen=True)
class PushTiming(PushTimed):
    """A problem on which the kernel was timed."""

    @property
    def label(self) -> str:
        """The problem: "4096x1024 float32 axis=-1"."""
        return label_of(self.problem)

    @property
    def rows(self) -> list[BenchmarkRow]:
        """The push, then the implementations beside it."""
        return [BenchmarkRow.of(result, self.label) for result in self.results]


PushEvent: TypeAlias = "PushQueued | PushCompiled | PushCheck | PushTiming | PushVerdict"
# Is called with each event as it comes.
OnEvent: TypeAlias = "Callable[[PushEvent], object] | None"
_EVENTS: dict[int, type[Any]] = {
    1: PushQueued,
    2: PushCompiled,
    3: PushCheck,
    4: PushTiming,
    5: PushVerdict,
}
_NAMES = dict(
    zip(_EVENTS.values(), ("queued", "compiled", "checked", "timed", "verdict"), strict=True)
)
# These fields of a PushCompiled are known once a GPU has loaded the code.
_LOADED = (
    "registers_per_thread",
    "shared_memory_bytes",
    "local_memory_bytes",
    "theoretical_occupancy",
)


def _decode_event(data: bytes) -> PushEvent | None:
    """What a PushEvent holds; None for what a later version of the service says."""
    event: PushEvent | None = None
    try:
        for number, wire_type, value, stop in wire.fields(data, 0, len(data)):
            if wire_type == wire.BYTES and number in _EVENTS:
                event = decoded(_EVENTS[number], data[value:stop])
    except wire.WireError as error:
        raise bad_response(error) from None
    return event


class PushRun:
    """A report that is being filled."""

    def __init__(self, on_event: OnEvent) -> None:
        self.report = Push()
        self.parts = Parts(self._take)
        self._on_event = on_event

    def _take(self, data: bytes) -> None:
        event = _decode_event(data)
        if event is not None and self.report.status:
            raise bad_response(f"a {type(event).__name__} behind the verdict")
        self.report.add(event)
        if event is not None and self._on_event is not None:
            self._on_event(event)


@contextlib.contextmanager
def pushing(on_event: OnEvent) -> Generator[PushRun, None, None]:
    """Raises Internal if the stream ends without a verdict. An exception that ends the push early
    carries what came until then as its `report`."""
    run = PushRun(on_event)
    try:
        try:
            yield run
        except Unimplemented as error:
            if run.parts.begun or error.message not in NO_METHOD:
                raise
            raise Unimplemented("the server has no method Push: its version is too old") from None
        if not run.report.status:
            raise bad_response("the stream ended before the verdict did")
    except BaseException as error:
        error.report = run.report  # type: ignore[attr-defined]
        raise


# ---- the report ---------------------------------------------------------------------------------


@dataclasses.dataclass(repr=False)
class Push(Table):
    """A pushed kernel: how it compiled, whether it is right, how fast it is."""

    verdict: PushVerdict = dataclasses.field(default_factory=PushVerdict)
    """Empty if the push ended early."""
    compiled: list[PushCompiled] = dataclasses.field(default_factory=list[PushCompiled])
    """One for each data type."""
    checks: list[PushCheck] = dataclasses.field(default_factory=list[PushCheck])
    """One for each problem; the first that fails is the last."""
    timings: list[PushTiming] = dataclasses.field(default_factory=list[PushTiming])
    """One for each problem that was timed."""

    events: list[PushEvent | None] = dataclasses.field(default_factory=list["PushEvent | None"])
    """All in order; None stands for an event that only newer servers have."""

    def add(self, event: PushEvent | None) -> None:
        """Adds an event of the answer."""
        self.events.append(event)
        if isinstance(event, PushCompiled):
            self.compiled.append(event)
        elif isinstance(event, PushCheck):
            self.checks.append(event)
        elif isinstance(event, PushTiming):
            self.timings.append(event)
        elif isinstance(event, PushVerdict):
            self.verdict = event

    @property
    def status(self) -> str:
        """ "PASSED", or why not: "COMPILE_ERROR", "INCORRECT_NUMERICAL", ...; see
        `PushVerdict.status` in warpcall.proto."""
        return self.verdict.status

    @property
    def passed(self) -> bool:
        return self.status == PASSED

    @property
    def reason(self) -> str:
        """Why the kernel did not pass, in a sentence; empty if it did."""
        return self.verdict.reason

    @property
    def speedup(self) -> float:
        """Times as fast as the fastest other implementation: the geometric mean over the timed
        problems; 0 if nothing was timed beside the push."""
        return self.verdict.speedup

    @property
    def name(self) -> str:
        """ "push:NAME@DIGEST"."""
        return self.verdict.name

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical manifest and the code, 32 hexadecimal digits."""
        return self.verdict.digest or next((each.digest for each in self.compiled), "")

    @property
    def seed(self) -> int:
        """Given to another push, it repeats the inputs and addresses of this one."""
        return self.verdict.seed

    @property
    def log(self) -> str:
        """The compiler's output for all data types, as it came: escape it before you show it."""
        return "\n".join(dict.fromkeys(each.log for each in self.compiled if each.log))

    def source(self, language: str) -> str:
        """Returns the machine code's text, "ptx" or "sass", if the push was made `with_files`."""
        files = (file for each in self.compiled for file in each.files)
        return "\n".join(file.text for file in files if file.language == language)

    @property
    def benchmark(self) -> Benchmark:
        """The timings as a Benchmark, for `warpcall.plot` and `warpcall.compare`."""
        types = dict.fromkeys(each.problem.inputs[0].data_type for each in self.timings)
        report = Benchmark(self.name, ", ".join(types))
        report.device = self.verdict.stamp.device_description
        for each in self.timings:
            ceilings = (each.ceiling_bytes_per_second, self.verdict.stamp, each.flops_ceiling)
            report.add(each.label, BenchmarkResponse(each.results, "", *ceilings))
        return report

    def raise_for_verdict(self) -> Push:
        """Returns the report if the kernel passed; raises PushRejected with it otherwise."""
        if self.passed:
            return self
        error = PushRejected(self.reason or "no reason was given", code=self.status or "UNKNOWN")
        error.report = self
        raise error

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as a dict for JSON, with the members that `warpcall push --json`
        prints: "events", all in order; "status" and "verdict", None if the push ended early. What
        was not measured is None. Numbers that JSON lacks are "nan", "inf" and "-inf"."""
        verdict = self.verdict if self.status else None
        return {
            "events": [_event_json(event) for event in self.events],
            "status": self.status or None,
            "verdict": None if verdict is None else _verdict_json(verdict),
        }

    def to_json(self, indent: int | None = 2) -> str:
        """Returns the report as JSON."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    # ---- as a table ----

    def _title(self) -> str:
        verdict = self.verdict
        head = self.status or "no verdict"
        if verdict.finite_only:
            head += " for finite inputs"
        head += f": {_line(self.reason)}" if self.reason else ""
        device = verdict.stamp.device_description
        about = _line(", ".join(fact for fact in (self.name, device) if fact))
        return "\n".join(line for line in (head, about) if line)

    def _tables(self) -> list[Cells]:
        tables = [self._of_compiled(), self._of_checks(), self.benchmark._cells()]
        return [(header, _lines(rows)) for header, rows in tables if rows]

    def _notes(self) -> list[str]:
        notes: list[str] = []
        if self.speedup > 0:
            notes.append(f"{digits(self.speedup)} times as fast as the fastest other")
        for each in self.timings:
            notes += [f"{each.label}: {remark}" for remark in _remarks(each)]
        if self.verdict.cached:
            notes.append("the verdict of an earlier push; fresh=True judges it again")
        if self.seed and self.checks:
            notes.append(f"seed={self.seed} repeats this run")
        if self.log and self.status != _COMPILE_ERROR:
            lines = len(self.log.splitlines())
            notes.append(f"the compiler wrote {lines} line{'s' * (lines > 1)}: see .log")
        return [_line(note) for note in [*notes, *self.benchmark._notes()]]

    def __repr__(self) -> str:
        log = printable(self.log) if self.status == _COMPILE_ERROR else ""
        return "\n\n".join(part for part in (super().__repr__(), log) if part)

    def _repr_html_(self) -> str:
        log = printable(self.log) if self.status == _COMPILE_ERROR else ""
        return super()._repr_html_() + (f"<pre>{html.escape(log)}</pre>" if log else "")

    def _of_compiled(self) -> Cells:
        header = ["compiled", "for", "in", "registers", "shared", "local", "occupancy"]
        rows: list[list[str]] = []
        for each in self.compiled:
            time = "cached" if each.cached else nanoseconds(each.compile_ns)
            loaded = [
                str(each.registers_per_thread),
                binary_bytes(each.shared_memory_bytes),
                binary_bytes(each.local_memory_bytes),
                f"{100 * each.theoretical_occupancy:.0f} %",
            ]
            # A kernel without registers was not loaded: there is no GPU.
            rows.append(
                [
                    each.data_type,
                    each.arch,
                    time,
                    *(loaded if each.registers_per_thread else "----"),
                ]
            )
        return header, rows

    def _of_checks(self) -> Cells:
        header = ["checked", "inputs", "elements", "error / bound", "right"]
        return header, [
            [
                each.label,
                each.fill,
                str(each.checked_elements),
                f"{each.max_error:.3g}",
                "yes" if each.passed else f"NO: {each.detail} {_where(each)}".rstrip(),
            ]
            for each in self.checks
        ]


def _event_json(event: PushEvent | None) -> dict[str, Any]:
    if event is None:
        return {"event": "unknown"}
    if isinstance(event, PushVerdict):
        data = _verdict_json(event)
    else:
        data = cast("dict[str, Any]", _for_json(dataclasses.asdict(event)))
    if isinstance(event, PushCheck) and event.mismatch is None:
        data["first"] = None
    if isinstance(event, PushCompiled) and not event.registers_per_thread:
        data.update(dict.fromkeys(_LOADED))
    return {"event": _NAMES[type(event)], **data}


def _verdict_json(verdict: PushVerdict) -> dict[str, Any]:
    data = cast("dict[str, Any]", _for_json(dataclasses.asdict(verdict)))
    if verdict.stamp == RunStamp():
        data["stamp"] = None
    if not verdict.speedup:
        data["speedup"] = None
    # Other verdicts come before all launches have been compared.
    if verdict.status not in (PASSED, "NONDETERMINISTIC"):
        data["deterministic"] = None
    return data


def _where(check: PushCheck) -> str:
    first = check.mismatch
    if first is None:
        return ""
    at = ", ".join(map(str, first.index))
    return f"[{at}] is {first.got:.9g}, expected {first.expected:.9g} ± {first.bound:.3g}"


def _remarks(timing: PushTiming) -> list[str]:
    remarks: list[str] = []
    if timing.unstable:
        remarks.append("other work disturbed the times, which can't be ranked")
    if not timing.cold:
        remarks.append("operands were in the L2 cache")
    if timing.floor_ns > 0:
        remarks.append(f"no kernel can take less than {nanoseconds(timing.floor_ns)}")
    return remarks


def _line(text: str) -> str:
    """Text of a server's or an author's, on one line."""
    return printable(" ".join(text.split("\n")))


def _lines(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[_line(cell) for cell in row] for row in rows]


def _for_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast("Mapping[str, Any]", value)
        return {name: _for_json(item) for name, item in items.items()}
    if isinstance(value, (list, tuple)):
        return [_for_json(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value
