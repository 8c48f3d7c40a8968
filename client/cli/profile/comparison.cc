#include "client/cli/profile/comparison.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/substitute.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

// Smaller differences between times do not count: a few runs can't show them.
constexpr double kSameRatio = 1.05;
// Smallest difference between two figures that is reported as a reason: as a ratio, ...
constexpr double kRatioMin = 1.1;
// ... as a share of the difference of their times, and as a difference of shares.
constexpr double kShareMin = 0.1;

// Device time of a run: kernels, gaps and transfers.
double TimeOf(const Figures& figures) {
  return figures.kernel_ns + figures.gap_ns + figures.transfer_ns;
}

double RatioOf(double first, double second) {
  return first > 0 && second >= 0 ? second / first : -1;
}

// Formats of a figure for people.
using Text = std::function<std::string(double)>;

std::string Plain(double value) { return absl::StrFormat("%.4g", value); }

Text Rate(const char* unit) {
  return [unit](double value) { return HumanRate(value, unit); };
}

class FigureList {
 public:
  FigureList(const Figures& first, const Figures& second) : first_(first), second_(second) {}

  // Adds nothing if neither profile has the figure, or both have 0.
  void Add(const char* name, double Figures::*figure, const Text& text) {
    AddValues(name, first_.*figure, second_.*figure, text);
  }
  void AddValues(const char* name, double first, double second, const Text& text) {
    if (first <= 0 && second <= 0) return;
    const auto told = [&](double value) { return value < 0 ? "-" : text(value); };
    list_.push_back({name, told(first), told(second), RatioOf(first, second)});
  }
  std::vector<ComparedFigure> Take() { return std::move(list_); }

 private:
  const Figures& first_;
  const Figures& second_;
  std::vector<ComparedFigure> list_;
};

std::vector<ComparedFigure> FiguresSideBySide(const Figures& first, const Figures& second) {
  FigureList list(first, second);
  list.AddValues("time on the device", TimeOf(first), TimeOf(second), HumanTime);
  list.Add("kernels' time", &Figures::kernel_ns, HumanTime);
  list.Add("gaps", &Figures::gap_ns, HumanTime);
  list.Add("transfers", &Figures::transfer_ns, HumanTime);
  list.Add("run, with the host's part", &Figures::run_ns, HumanTime);
  list.Add("kernels", &Figures::kernels, Plain);
  list.Add("B/s of the least bytes", &Figures::bytes_per_second, Rate("B/s"));
  list.Add("of a copy's speed", &Figures::fraction_of_ceiling, PercentOf);
  list.Add("FLOP/s", &Figures::flops_per_second, Rate("FLOP/s"));
  list.Add("passes, at most", &Figures::passes_max, Plain);
  list.Add("bytes of memory, counted", &Figures::counted_bytes, HumanBytes);
  list.Add("achieved occupancy", &Figures::achieved_occupancy, PercentOf);
  list.Add("multiprocessors", &Figures::sm_throughput, PercentOf);
  list.Add("memory", &Figures::dram_throughput, PercentOf);
  list.Add("threads working", &Figures::threads_busy, PercentOf);
  list.Add("threads waiting for a core", &Figures::threads_waiting, PercentOf);
  list.Add("instructions", &Figures::instructions, Rate(""));
  list.Add("cycles", &Figures::cycles, Rate(""));
  return list.Take();
}

// Lists the reasons why one profile is slower than another, under the slower one's name.
class Reasons {
 public:
  Reasons(const Profiled& slow, const Figures& slower, const Figures& faster)
      : name_(NameOf(slow)), slower_(slower), faster_(faster) {
    AddTimes();
    AddWork();
    AddShares();
    if (slow.plan.local_memory_bytes() > 0)
      Add(absl::StrCat("spills ", slow.plan.local_memory_bytes(), " bytes of each thread."));
    if (reasons_.empty())
      reasons_.push_back("No figure explains it; counters and `warpcall describe --source` may.");
  }

  std::vector<std::string> Take() { return std::move(reasons_); }

 private:
  void Add(const std::string& text) { reasons_.push_back(absl::StrCat(name_, " ", text)); }

  void AddTimes() {
    const double difference_ns = TimeOf(slower_) - TimeOf(faster_);
    const auto add = [&](double Figures::*time, const char* text) {
      if (slower_.*time - faster_.*time >= kShareMin * difference_ns)
        Add(absl::Substitute(text, HumanTime(slower_.*time), HumanTime(faster_.*time)));
    };
    add(&Figures::gap_ns, "leaves the device idle for $0 per run, the other for $1.");
    add(&Figures::transfer_ns, "moves tensors for $0 per run, the other for $1.");
  }

  void AddWork() {
    if (slower_.kernels > faster_.kernels)
      Add(
          absl::StrFormat("takes %.3g kernels a run, the other %.3g: each reads and writes memory "
                          "again.",
                          slower_.kernels, faster_.kernels));
    const auto add = [&](double Figures::*work, const char* text) {
      const double ratio = RatioOf(faster_.*work, slower_.*work);
      if (ratio >= kRatioMin) Add(absl::Substitute(text, absl::StrFormat("%.2f", ratio)));
    };
    add(&Figures::counted_bytes, "moves $0 times the bytes.");
    add(&Figures::instructions, "executes $0 times the instructions.");
  }

  void AddShares() {
    const auto add = [&](double Figures::*share, const char* text) {
      if (slower_.*share >= 0 && faster_.*share - slower_.*share >= kShareMin)
        Add(absl::Substitute(text, PercentOf(slower_.*share), PercentOf(faster_.*share)));
    };
    add(&Figures::achieved_occupancy, "has an occupancy of $0, the other of $1.");
    if (std::max(slower_.threads_waiting, faster_.threads_waiting) >= kShareMin)
      Add(absl::StrCat("had to wait for a core ", PercentOf(slower_.threads_waiting),
                       " of its threads' time, the other ", PercentOf(faster_.threads_waiting),
                       ": while the machine does other work, times say little."));
    else
      add(&Figures::threads_busy, "keeps threads busy for $0 of the time, the other for $1.");
  }

  const std::string name_;
  const Figures& slower_;
  const Figures& faster_;
  std::vector<std::string> reasons_;
};

}  // namespace

Comparison Compare(const Profiled& first, const Profiled& second) {
  const Figures first_figures = FiguresOf(first);
  const Figures second_figures = FiguresOf(second);
  Comparison comparison;
  comparison.figures = FiguresSideBySide(first_figures, second_figures);
  for (const auto& [profiled, figures] :
       {std::pair(&first, &first_figures), {&second, &second_figures}})
    if (IsInconclusive(*profiled, *figures))
      comparison.reasons.push_back(absl::StrCat("Inconclusive: while ", NameOf(*profiled), " ran, ",
                                                profiled->report.inconclusive(), "."));
  if (!comparison.reasons.empty()) return comparison;
  comparison.time_ratio = RatioOf(TimeOf(first_figures), TimeOf(second_figures));
  const double ratio = comparison.time_ratio;
  if (NameOf(first) == NameOf(second)) {
    comparison.reasons = {absl::StrCat("Both names are of ", NameOf(first), ".")};
  } else if (!(ratio > 0)) {
    comparison.reasons = {"One of the two ran no kernel that the profile could see."};
  } else if (ratio < kSameRatio && ratio > 1 / kSameRatio) {
    comparison.reasons = {"They differ by less than 5 %, which a few runs do not tell apart."};
  } else {
    const bool second_slower = ratio > 1;
    comparison.reasons =
        Reasons(second_slower ? second : first, second_slower ? second_figures : first_figures,
                second_slower ? first_figures : second_figures)
            .Take();
  }
  return comparison;
}

}  // namespace warpcall::cli
