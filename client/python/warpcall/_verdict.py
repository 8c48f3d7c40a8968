"""Finds the bound of a kernel's speed from its profile, the plan of its run and its device, by the
rules and in the words of `warpcall profile` (client/cli/profile/figures.cc and verdict.cc, which
give the sources of numbers)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

from ._format import binary_bytes, bytes_per_second, flops_per_second, nanoseconds
from ._proto import DescribeResponse, DeviceInfo, ProfileResponse, ProfileRow

_NEAR = 0.6  # a share of a peak from which on everything else waits for it
_BUSY = 0.7  # of the threads' time for which there were cores
_WAITING = 0.1  # of the threads' time: from here on it is worth a sentence,
_PASSES_MANY = 1.5
_SHORT_ON_GPU_NS, _SHORT_ON_CPU_NS = 5_000, 20_000
_ABOVE_MEMORY = 1.05
_COPY_OF_PEAK = 0.9
_EMPTY_SHARE_MIN, _BLOCKS_MIN, _CLOCK_HERTZ = 0.1, 4, 1.4e9

_FUSE = (
    "One call for the steps before and after it too (the kernel fused) saves passes over memory."
)
_BENCH = "`benchmark` times the other implementations on this problem."
_LARGER = "Larger calls: several problems in one."
_NARROWER = "A narrower type has fewer bytes."


@dataclasses.dataclass(frozen=True)
class Profiled:
    """A profile and what the server tells of it besides."""

    response: ProfileResponse
    device: DeviceInfo = dataclasses.field(default_factory=DeviceInfo)
    plan: DescribeResponse = dataclasses.field(default_factory=DescribeResponse)
    plan_missing: str = ""
    """Why there is no plan."""

    @property
    def is_cpu(self) -> bool:
        return self.device.kind == "cpu"


@dataclasses.dataclass
class Figures:
    """Averages for one run; -1 where a value is unknown. Times in nanoseconds."""

    run_ns: float = -1
    kernel_ns: float = 0
    kernels: float = 0
    """Launches."""
    gap_ns: float = 0
    """Idle time of the device between its first and last activity."""
    transfer_ns: float = 0
    least_bytes: float = -1
    """Read and written once."""
    flops: float = -1
    counted_bytes: float = -1
    """That memory gave and took."""
    ceiling_bytes_per_second: float = -1
    """A copy, read plus written."""
    bytes_per_second: float = -1
    flops_per_second: float = -1
    fraction_of_ceiling: float = -1
    passes: float = -1
    """Over memory, by the least bytes."""
    passes_max: float = -1
    achieved_occupancy: float = -1
    sm_throughput: float = -1
    dram_throughput: float = -1
    threads_busy: float = -1
    """As a share of the time of all the CPU's threads."""
    threads_waiting: float = -1
    """Until a core was free."""
    instructions: float = -1
    cycles: float = -1


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The bound of a kernel's speed, with its reason and advice."""

    bound: str = "unknown"
    """ "memory", "compute", "latency", "launch", "transfer", "inconclusive" or "unknown"."""
    reason: str = ""
    advice: tuple[str, ...] = ()

    def __str__(self) -> str:
        titles = {"unknown": "Bound unknown", "inconclusive": "Inconclusive"}
        return f"{titles.get(self.bound, f'Bound by {self.bound}')}: {self.reason}"


# ---- figures ------------------------------------------------------------------------------------


def figures_of(profiled: Profiled) -> Figures:
    figures, response = Figures(), profiled.response
    if response.iterations <= 0:
        return figures
    _add_times(response, figures)
    if profiled.is_cpu:
        _add_threads(profiled, figures)
    kernels = [row for row in response.rows if row.kind == "kernel"]
    figures.achieved_occupancy = _weighted((r, r.achieved_occupancy) for r in kernels)
    figures.sm_throughput = _weighted((r, r.sm_throughput) for r in kernels)
    figures.dram_throughput = _weighted((r, r.dram_throughput) for r in kernels)
    counters = {row.name: row for row in response.rows if row.kind == "counter"}
    if "instructions" in counters:
        figures.instructions = counters["instructions"].calls / response.iterations
    if "cycles" in counters:
        figures.cycles = counters["cycles"].calls / response.iterations
    bandwidth = profiled.device.measured_bandwidth_bytes_per_second
    if bandwidth > 0:
        figures.ceiling_bytes_per_second = bandwidth
    if not profiled.plan_missing:
        figures.least_bytes = profiled.plan.launch.bytes_moved
        figures.flops = profiled.plan.launch.flops
    figures.bytes_per_second = 1e9 * _ratio(figures.least_bytes, figures.kernel_ns, -1e-9)
    figures.flops_per_second = 1e9 * _ratio(figures.flops, figures.kernel_ns, -1e-9)
    figures.fraction_of_ceiling = _ratio(figures.bytes_per_second, figures.ceiling_bytes_per_second)
    if "cache misses" in counters:
        figures.counted_bytes = counters["cache misses"].bytes / response.iterations
    elif figures.dram_throughput >= 0 and bandwidth > 0:
        seconds = figures.kernel_ns / 1e9
        figures.counted_bytes = figures.dram_throughput * bandwidth / _COPY_OF_PEAK * seconds
    figures.passes = _ratio(figures.counted_bytes, figures.least_bytes)
    if figures.fraction_of_ceiling > 0:
        figures.passes_max = 1 / figures.fraction_of_ceiling
    return figures


def _ratio(part: float, whole: float, unknown: float = -1) -> float:
    return part / whole if part >= 0 and whole > 0 else unknown


def _weighted(shares: Iterable[tuple[ProfileRow, float]]) -> float:
    """Over all kernels that tell one, by their time."""
    told = [(row.total_ns, share) for row, share in shares if share >= 0]
    return _ratio(sum(ns * share for ns, share in told), sum(ns for ns, _ in told))


def _add_times(response: ProfileResponse, figures: Figures) -> None:
    for row in response.rows:
        ns = row.total_ns / response.iterations
        if row.kind == "kernel":
            figures.kernel_ns += ns
            figures.kernels += row.calls / response.iterations
        elif row.kind == "gap":
            figures.gap_ns += ns
        elif row.kind == "copy" or (row.kind, row.name) == ("host", "copy_in"):
            figures.transfer_ns += ns
        elif (row.kind, row.name) == ("host", "run"):
            figures.run_ns = ns


def _add_threads(profiled: Profiled, figures: Figures) -> None:
    rows = [row for row in profiled.response.rows if row.kind == "thread"]
    if not rows:
        return
    busy = sum(row.total_ns for row in rows if row.name.startswith("cpu thread "))
    waiting = sum(row.total_ns for row in rows) - busy
    all_ns = figures.run_ns * profiled.device.multiprocessors * profiled.response.iterations
    figures.threads_busy = _ratio(busy, all_ns)
    # The system books a wait when it is over, also one that began before the runs.
    idle = max(1 - figures.threads_busy, 0.0)
    figures.threads_waiting = min(_ratio(waiting, all_ns), idle)


# ---- verdict ------------------------------------------------------------------------------------


def judge(profiled: Profiled, figures: Figures) -> Verdict:
    if not figures.kernel_ns > 0:
        return Verdict(reason="the profile shows no kernel.")
    other_work = _other_work(profiled, figures)
    if other_work:
        return Verdict("inconclusive", f"{other_work}.")
    verdict = _judge_run(profiled, figures)
    reason, advice = verdict.reason, verdict.advice
    if figures.fraction_of_ceiling > _ABOVE_MEMORY:
        reason += (
            " Over 100% of a copy: some of it came from caches, or the copy was measured while the"
            " machine did other work."
        )
    if figures.threads_waiting >= _WAITING:
        reason += f" Its threads waited {percent(figures.threads_waiting)} of the time for a core."
        advice = ("Profile again while nothing else runs on this machine.", *advice)
    return Verdict(verdict.bound, reason, advice)


def _other_work(profiled: Profiled, figures: Figures) -> str:
    """Why the times do not tell what the kernel takes, in the server's words. With a GPU only where
    the host's share is larger than the kernels'."""
    said = profiled.response.inconclusive
    of_host = figures.gap_ns + figures.transfer_ns > figures.kernel_ns
    return said if profiled.is_cpu or of_host else ""


def _judge_run(profiled: Profiled, figures: Figures) -> Verdict:
    if figures.transfer_ns > figures.kernel_ns + figures.gap_ns:
        return Verdict(
            "transfer",
            f"moving tensors takes {nanoseconds(figures.transfer_ns)} per run, its kernels take"
            f" {nanoseconds(figures.kernel_ns)}.",
            (
                "One call for several steps (the kernel fused) moves tensors once.",
                "Several calls at once, or connections=, let transfers and kernels overlap; a"
                " narrower type has fewer bytes.",
            ),
        )
    if figures.gap_ns > figures.kernel_ns:
        return Verdict(
            "launch",
            f"the device is idle for {nanoseconds(figures.gap_ns)} of a run, between"
            f" {figures.kernels:.3g} kernels that take {nanoseconds(figures.kernel_ns)} together.",
            (
                "One kernel in place of several (families cuda, triton and compiled; fused).",
                _LARGER,
            ),
        )
    return _judge_kernels(profiled, figures)


def _judge_kernels(profiled: Profiled, figures: Figures) -> Verdict:
    memory, compute = _share_of_memory(profiled, figures), _share_of_compute(profiled, figures)
    if memory >= _NEAR and memory >= compute:
        return _by_memory(profiled, figures)
    if compute >= _NEAR:
        return _by_multiprocessors(profiled, figures)
    each_ns = figures.kernel_ns / max(figures.kernels, 1.0)
    if each_ns < (_SHORT_ON_CPU_NS if profiled.is_cpu else _SHORT_ON_GPU_NS):
        return _by_shortness(profiled, figures, each_ns)
    cores = 1 - max(figures.threads_waiting, 0.0)
    if profiled.is_cpu and figures.threads_busy > 0 and figures.threads_busy >= _BUSY * cores:
        return _by_cores(figures)
    if profiled.is_cpu and figures.threads_busy < 0:
        return Verdict(reason="the server does not report the work of the CPU's threads.")
    if not profiled.is_cpu and memory < 0 and compute < 0:
        why = f": {profiled.plan_missing}" if profiled.plan_missing else ""
        return Verdict(reason=f"neither counters nor the least bytes are known{why}.")
    return _by_waiting(profiled, figures)


def _share_of_compute(profiled: Profiled, figures: Figures) -> float:
    if figures.sm_throughput >= 0:
        return figures.sm_throughput
    return _ratio(figures.flops_per_second, float32_flops_min(profiled.device))


def _share_of_memory(profiled: Profiled, figures: Figures) -> float:
    """Share of the memory ceiling: the largest of those by least bytes, by the memory's counters
    and by missed cache lines. A CPU kernel faster than a copy is not limited by memory."""
    from_caches = profiled.is_cpu and figures.fraction_of_ceiling > _ABOVE_MEMORY
    share = max(-1 if from_caches else figures.fraction_of_ceiling, figures.dram_throughput)
    if figures.counted_bytes >= 0 and figures.ceiling_bytes_per_second > 0:
        counted = figures.counted_bytes * 1e9 / figures.kernel_ns
        share = max(share, counted / figures.ceiling_bytes_per_second)
    return share


def _by_memory(profiled: Profiled, figures: Figures) -> Verdict:
    advice: list[str] = []
    if figures.fraction_of_ceiling >= _NEAR:
        reason = (
            f"{bytes_per_second(figures.bytes_per_second)} are"
            f" {percent(figures.fraction_of_ceiling)} of the"
            f" {bytes_per_second(figures.ceiling_bytes_per_second)} that a copy reaches on"
            f" {profiled.response.device}."
        )
    elif figures.dram_throughput >= _NEAR:
        reason = f"memory works at {percent(figures.dram_throughput)} of its peak."
    else:
        reason = f"{binary_bytes(figures.counted_bytes)} of cache lines a run come from memory."
    if figures.passes >= _PASSES_MANY:
        least = binary_bytes(figures.least_bytes)
        reason += f" That is {figures.passes:.1f} times the least, {least}."
        advice.append(
            "An implementation that reads and writes each byte once moves less; `benchmark`"
            " compares."
        )
    return Verdict("memory", reason, (*advice, _NARROWER, _FUSE))


def _by_multiprocessors(profiled: Profiled, figures: Figures) -> Verdict:
    if figures.sm_throughput >= 0:
        reason = (
            f"multiprocessors work at {percent(figures.sm_throughput)} of their peak, memory at"
            f" {percent(figures.dram_throughput)}."
        )
    else:
        reason = (
            f"{flops_per_second(figures.flops_per_second)} are more than half of what float32"
            " lanes do without tensor cores."
        )
    tensor_cores = (
        "Tensor cores take float16 and bfloat16, and float32 as precision=tf32 where the kernel has"
        " it."
    )
    return Verdict("compute", reason, (*_advise_on_launch(profiled), tensor_cores, _BENCH))


def _by_shortness(profiled: Profiled, figures: Figures, each_ns: float) -> Verdict:
    advice = [_LARGER]
    if profiled.is_cpu:
        reason = (
            f"a kernel of {nanoseconds(each_ns)} ends before the pool's threads wake up, which"
            f" takes some {nanoseconds(_SHORT_ON_CPU_NS)}."
        )
    else:
        reason = (
            f"a kernel of {nanoseconds(each_ns)} takes little longer than an empty one, some 2 µs."
        )
    if figures.kernels > 1:
        advice.append(
            f"One kernel in place of {figures.kernels:.3g} (families cuda, triton and compiled;"
            " fused)."
        )
    return Verdict("launch", reason, tuple(advice))


def _by_cores(figures: Figures) -> Verdict:
    reason = f"the threads were busy {percent(figures.threads_busy)} of the time"
    if figures.cycles > 0:
        reason += f", {figures.instructions / figures.cycles:.2f} instructions a cycle"
    if figures.fraction_of_ceiling >= 0:
        share = percent(figures.fraction_of_ceiling)
        reason += f", and the least bytes moved at {share} of copy bandwidth"
    reason += "."
    # A time that is mostly waiting would inflate the number of passes.
    unseen = figures.passes < 0 and figures.threads_waiting < _WAITING
    if unseen and figures.passes_max >= _PASSES_MANY:
        reason += (
            f" Or it makes up to {figures.passes_max:.1f} passes over memory: only hardware"
            " counters could tell."
        )
    return Verdict("compute", reason, (_BENCH, "A narrower type has more elements in a vector."))


def _by_waiting(profiled: Profiled, figures: Figures) -> Verdict:
    if profiled.is_cpu:
        reason = (
            f"{profiled.device.multiprocessors} threads were busy"
            f" {percent(figures.threads_busy)} of the time"
        )
        if figures.fraction_of_ceiling >= 0:
            share = percent(figures.fraction_of_ceiling)
            reason += f", and memory traffic ran at {share} of copy bandwidth"
        more = "More rows or elements in one call give more threads something to do."
        return Verdict("latency", f"{reason}.", (more, _BENCH))
    reason = (
        f"neither memory ({percent(_share_of_memory(profiled, figures))}) nor arithmetic"
        f" ({percent(_share_of_compute(profiled, figures))}) is near its peak"
    )
    if figures.achieved_occupancy >= 0:
        reason += f" at an occupancy of {percent(figures.achieved_occupancy)}"
    return Verdict("latency", f"{reason}.", (*_advise_on_launch(profiled), _BENCH))


# ---- launches (client/cli/common/advice.cc) -----------------------------------------------------


def float32_flops_min(device: DeviceInfo) -> float:
    """Returns the least FLOP/s of a GPU's float32 lanes; 0 for other devices."""
    if device.kind != "cuda":
        return 0.0
    capability = device.compute_capability
    lanes = 64 if capability == "8.0" or capability.startswith("7.") else 128
    return 2 * _CLOCK_HERTZ * lanes * device.multiprocessors


def _advise_on_launch(profiled: Profiled) -> Sequence[str]:
    plan, advice = profiled.plan, list[str]()
    waves, every = plan.launch.waves, math.ceil(plan.launch.waves)
    if waves > 0 and (every - waves) / every >= _EMPTY_SHARE_MIN:
        if every == 1:
            advice.append(
                f"The blocks fill {100 * waves:.0f} % of the device: smaller ones, or more of them,"
                " would use the rest."
            )
        else:
            advice.append(
                f"The last of {every} waves fills {100 * (waves - every + 1):.0f} % of the device:"
                f" {100 * (every - waves) / every:.0f} % of all slots for blocks stay empty."
            )
    extents = plan.grid.split("x") if plan.grid else []
    blocks = math.prod(int(size) if size.isdigit() else 0 for size in extents) if extents else 0
    multiprocessors = profiled.device.multiprocessors
    if blocks and multiprocessors and blocks / multiprocessors < _BLOCKS_MIN:
        advice.append(
            f"{blocks} blocks on {multiprocessors} multiprocessors are"
            f" {blocks / multiprocessors:.1f} for each; with fewer than {_BLOCKS_MIN} there is"
            " little to do while some wait."
        )
    if plan.local_memory_bytes:
        advice.append(
            f"{plan.local_memory_bytes} bytes of each thread do not fit into its"
            f" {plan.registers_per_thread} registers and go through the caches: spills."
        )
    return advice


def percent(share: float) -> str:
    return "-" if share < 0 else f"{100 * share:.1f}%"
