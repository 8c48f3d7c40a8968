#include "client/cli/profile/verdict.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/common/advice.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

// The share of its peak from which on something counts as what everything else waits for: what is
// well tuned reaches 0.8 to 0.98 of a copy's bandwidth, what does something else in between less
// than half.
constexpr double kNear = 0.6;
// The share of all threads' time from which on the CPU's cores count as occupied.
constexpr double kBusy = 0.7;
// A share of the threads' time spent waiting for a core that says that others use the machine.
constexpr double kWaiting = 0.1;
// Passes over memory from which on there is one to be saved.
constexpr double kPassesMany = 1.5;
// An empty kernel takes a GPU some 2 us; a pool's threads are awake after some 20 us.
constexpr double kShortOnGpuNs = 5'000;
constexpr double kShortOnCpuNs = 20'000;

constexpr char kFuse[] =
    "One call for the steps before and after it too (warpcall fused) saves passes over memory.";
constexpr char kBench[] = "`warpcall bench` times the other implementations on this problem.";

bool IsCpu(const Profiled& profiled) { return profiled.device.kind == kCpuKind; }

double KernelsShareOfPeak(const Profiled& profiled, const Figures& figures) {
  if (figures.sm_throughput >= 0) return figures.sm_throughput;
  const double flops = Float32FlopsMin(profiled.device);
  return flops > 0 && figures.flops_per_second >= 0 ? figures.flops_per_second / flops : -1;
}

// Share of the memory ceiling: the largest of those by least bytes, by the memory's own counters
// and by missed cache lines. A CPU kernel that is faster than a copy is not limited by memory;
// without counters a GPU's caches count as memory.
double MemorysShareOfPeak(const Profiled& profiled, const Figures& figures) {
  const bool from_caches = IsCpu(profiled) && figures.fraction_of_ceiling > kAboveMemory;
  double share = std::max(from_caches ? -1 : figures.fraction_of_ceiling, figures.dram_throughput);
  if (figures.counted_bytes >= 0 && figures.ceiling_bytes_per_second > 0)
    share = std::max(
        share, figures.counted_bytes * 1e9 / figures.kernel_ns / figures.ceiling_bytes_per_second);
  return share;
}

std::string OfACopy(const Profiled& profiled, const Figures& figures) {
  return absl::StrCat(HumanRate(figures.bytes_per_second, "B/s"), " are ",
                      PercentOf(figures.fraction_of_ceiling), " of the ",
                      HumanRate(figures.ceiling_bytes_per_second, "B/s"),
                      " that a copy reaches on ", profiled.report.device());
}

Verdict ByTransfers(const Figures& figures) {
  return {Bound::kTransfer,
          absl::StrCat("moving tensors takes ", HumanTime(figures.transfer_ns),
                       " per run, its kernels take ", HumanTime(figures.kernel_ns), "."),
          {"One call for several steps (warpcall fused) moves tensors once.",
           "Several calls at once, or --connections, let transfers and kernels overlap; a narrower "
           "type has fewer bytes."}};
}

Verdict ByGaps(const Figures& figures) {
  return {Bound::kLaunch,
          absl::StrFormat("the device is idle for %s of a run, between %.3g kernels that "
                          "take %s together.",
                          HumanTime(figures.gap_ns), figures.kernels, HumanTime(figures.kernel_ns)),
          {"One kernel in place of several (families cuda, triton and compiled; warpcall fused).",
           "Larger calls: several problems in one."}};
}

Verdict ByShortness(const Profiled& profiled, const Figures& figures) {
  Verdict verdict = {Bound::kLaunch, "", {"Larger calls: several problems in one."}};
  const std::string each = HumanTime(figures.kernel_ns / std::max(figures.kernels, 1.0));
  verdict.reason = IsCpu(profiled)
                       ? absl::StrCat("a kernel of ", each,
                                      " ends before the pool's threads wake up, which "
                                      "takes some ",
                                      HumanTime(kShortOnCpuNs), ".")
                       : absl::StrCat("a kernel of ", each,
                                      " takes little longer than an empty one, some 2 us.");
  if (figures.kernels > 1)
    verdict.advice.push_back(absl::StrFormat(
        "One kernel in place of %.3g (families cuda, triton and compiled; warpcall fused).",
        figures.kernels));
  return verdict;
}

Verdict ByMemory(const Profiled& profiled, const Figures& figures) {
  Verdict verdict = {Bound::kMemory, "", {}};
  if (figures.fraction_of_ceiling >= kNear) {
    verdict.reason = absl::StrCat(OfACopy(profiled, figures), ".");
  } else if (figures.dram_throughput >= kNear) {
    verdict.reason =
        absl::StrCat("memory works at ", PercentOf(figures.dram_throughput), " of its peak.");
  } else {
    verdict.reason =
        absl::StrCat(HumanBytes(figures.counted_bytes), " of cache lines a run come from memory.");
  }
  if (figures.passes >= kPassesMany) {
    absl::StrAppendFormat(&verdict.reason, " That is %.1f times the least, %s.", figures.passes,
                          HumanBytes(figures.least_bytes));
    verdict.advice.push_back(
        "An implementation that reads and writes each byte once moves less; `warpcall bench` "
        "compares.");
  }
  verdict.advice.push_back("A narrower type has fewer bytes.");
  verdict.advice.push_back(kFuse);
  return verdict;
}

Verdict ByMultiprocessors(const Profiled& profiled, const Figures& figures) {
  Verdict verdict = {Bound::kCompute, "", {}};
  verdict.reason =
      figures.sm_throughput >= 0
          ? absl::StrCat("multiprocessors work at ", PercentOf(figures.sm_throughput),
                         " of their peak, memory at ", PercentOf(figures.dram_throughput), ".")
          : absl::StrCat(HumanRate(figures.flops_per_second, "FLOP/s"),
                         " are more than half of what float32 lanes do without tensor cores.");
  verdict.advice = AdviseOnLaunch(profiled.plan, profiled.device);
  verdict.advice.push_back(
      "Tensor cores take float16 and bfloat16, and float32 as "
      "precision=tf32 where the kernel has it.");
  verdict.advice.push_back(kBench);
  return verdict;
}

Verdict ByCores(const Figures& figures) {
  Verdict verdict = {Bound::kCompute, "", {}};
  verdict.reason =
      absl::StrCat("the threads were busy ", PercentOf(figures.threads_busy), " of the time");
  if (figures.cycles > 0)
    absl::StrAppendFormat(&verdict.reason, ", %.2f instructions a cycle",
                          figures.instructions / figures.cycles);
  if (figures.fraction_of_ceiling >= 0)
    absl::StrAppend(&verdict.reason, ", and the least bytes moved at ",
                    PercentOf(figures.fraction_of_ceiling), " of copy bandwidth");
  verdict.reason += ".";
  // A time that is mostly waiting would inflate the number of passes.
  if (figures.passes_max >= kPassesMany && figures.passes < 0 && figures.threads_waiting < kWaiting)
    absl::StrAppendFormat(&verdict.reason,
                          " Or it makes up to %.1f passes over memory: only hardware counters "
                          "could tell.",
                          figures.passes_max);
  verdict.advice = {kBench, "A narrower type has more elements in a vector."};
  return verdict;
}

std::string Shares(const std::string& memory, const std::string& compute) {
  return absl::StrCat("neither memory (", memory, ") nor arithmetic (", compute,
                      ") is near its peak");
}

Verdict ByWaiting(const Profiled& profiled, const Figures& figures) {
  Verdict verdict = {Bound::kLatency, "", {}};
  if (IsCpu(profiled)) {
    verdict.reason = absl::StrCat(profiled.device.multiprocessors, " threads were busy ",
                                  PercentOf(figures.threads_busy), " of the time");
    if (figures.fraction_of_ceiling >= 0)
      absl::StrAppend(&verdict.reason, ", and memory traffic ran at ",
                      PercentOf(figures.fraction_of_ceiling), " of copy bandwidth");
    verdict.advice = {"More rows or elements in one call give more threads something to do.",
                      kBench};
  } else {
    verdict.reason = Shares(PercentOf(MemorysShareOfPeak(profiled, figures)),
                            PercentOf(KernelsShareOfPeak(profiled, figures)));
    if (figures.achieved_occupancy >= 0)
      absl::StrAppend(&verdict.reason, " at an occupancy of ",
                      PercentOf(figures.achieved_occupancy));
    verdict.advice = AdviseOnLaunch(profiled.plan, profiled.device);
    verdict.advice.push_back(kBench);
  }
  verdict.reason += ".";
  return verdict;
}

Verdict Unknown(std::string reason) { return {Bound::kUnknown, std::move(reason), {}}; }

Verdict JudgeKernels(const Profiled& profiled, const Figures& figures) {
  const double memory = MemorysShareOfPeak(profiled, figures);
  const double compute = KernelsShareOfPeak(profiled, figures);
  if (memory >= kNear && memory >= compute) return ByMemory(profiled, figures);
  if (compute >= kNear) return ByMultiprocessors(profiled, figures);
  const double each_ns = figures.kernel_ns / std::max(figures.kernels, 1.0);
  if (each_ns < (IsCpu(profiled) ? kShortOnCpuNs : kShortOnGpuNs))
    return ByShortness(profiled, figures);
  // The share of the time in which the threads had cores: a thread that waits does not work.
  const double cores = 1 - std::max(figures.threads_waiting, 0.0);
  if (IsCpu(profiled) && figures.threads_busy >= kBusy * cores && figures.threads_busy > 0)
    return ByCores(figures);
  if (IsCpu(profiled) && figures.threads_busy < 0)
    return Unknown("the server does not report the work of the CPU's threads.");
  if (!IsCpu(profiled) && memory < 0 && compute < 0)
    return Unknown(absl::StrCat("neither counters nor the least bytes are known",
                                profiled.plan_missing.empty() ? "" : ": ", profiled.plan_missing,
                                "."));
  return ByWaiting(profiled, figures);
}

Verdict JudgeRun(const Profiled& profiled, const Figures& figures) {
  if (figures.transfer_ns > figures.kernel_ns + figures.gap_ns) return ByTransfers(figures);
  if (figures.gap_ns > figures.kernel_ns) return ByGaps(figures);
  return JudgeKernels(profiled, figures);
}

}  // namespace

const char* BoundName(Bound bound) {
  switch (bound) {
    case Bound::kUnknown:
      break;
    case Bound::kInconclusive:
      return "inconclusive";
    case Bound::kMemory:
      return "memory";
    case Bound::kCompute:
      return "compute";
    case Bound::kLatency:
      return "latency";
    case Bound::kLaunch:
      return "launch";
    case Bound::kTransfer:
      return "transfer";
  }
  return "unknown";
}

Verdict Judge(const Profiled& profiled, const Figures& figures) {
  if (!(figures.kernel_ns > 0)) return Unknown("the profile shows no kernel.");
  if (IsInconclusive(profiled, figures))
    return {Bound::kInconclusive, absl::StrCat(profiled.report.inconclusive(), "."), {}};
  Verdict verdict = JudgeRun(profiled, figures);
  if (figures.fraction_of_ceiling > kAboveMemory)
    verdict.reason +=
        " Over 100% of a copy: some of it came from caches, or the copy was measured while the "
        "machine did other work.";
  if (figures.threads_waiting >= kWaiting) {
    absl::StrAppend(&verdict.reason, " Its threads waited ", PercentOf(figures.threads_waiting),
                    " of the time for a core.");
    verdict.advice.insert(verdict.advice.begin(),
                          "Profile again while nothing else runs on this machine.");
  }
  return verdict;
}

}  // namespace warpcall::cli
