#include "server/self_test/self_test.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::self_test {
namespace {

constexpr int kLookMs = 50;
constexpr int64_t kBusyMachine = 6;

Verdict Failed(int row, const std::string& device, absl::string_view what) {
  return {.row = row,
          .device = device,
          .unavailable = {Unavailability::Cause::kSelfTest,
                          absl::StrCat("failed its self-test: ", what)}};
}

bool IsPlausible(const ServiceRate& rate) {
  return std::isfinite(rate.fixed_ns) && rate.fixed_ns >= 0 && std::isfinite(rate.bytes_per_ns) &&
         rate.bytes_per_ns > 0 && std::isfinite(rate.flops_per_ns) && rate.flops_per_ns > 0;
}

Verdict ToVerdict(const Report& report, const std::string& device) {
  if (report.kind == Report::Kind::kCrashed) {
    const char* const name = sigabbrev_np(report.signal);
    return Failed(report.row, device,
                  absl::StrCat("crashed with SIG", name == nullptr ? "?" : name));
  }
  const bool is_known = report.cause == Unavailability::Cause::kLibrary ||
                        report.cause == Unavailability::Cause::kCompile;
  if (report.kind == Report::Kind::kFailed && !is_known) {
    Verdict verdict = Failed(report.row, device, report.text);
    verdict.ns = report.ns;
    return verdict;
  }
  Verdict verdict = {.row = report.row, .device = device};
  if (report.kind == Report::Kind::kFailed) verdict.unavailable = {report.cause, report.text};
  verdict.ns = report.ns;
  verdict.has_rate = report.has_rate != 0 && IsPlausible(report.rate);
  if (verdict.has_rate) verdict.rate = report.rate;
  for (const DataType type : kDataTypes)
    if ((report.data_types >> static_cast<uint32_t>(type) & 1) != 0)
      verdict.data_types.push_back(type);
  return verdict;
}

const Row& RowOf(const Registry& registry, int id) {
  return registry.rows()[static_cast<size_t>(id)];
}

// Parts of `rows` for children that try them at once, as even as may be: all rows of a kernel are
// in one, since a child computes what is right only once.
std::vector<std::vector<int>> PartsOf(const Registry& registry, const std::vector<int>& rows,
                                      int parts_max) {
  absl::btree_map<int, std::vector<int>> by_kernel;
  for (const int row : rows) by_kernel[RowOf(registry, row).kernel].push_back(row);
  std::vector<std::vector<int>> kernels;
  for (auto& [kernel, of_kernel] : by_kernel) kernels.push_back(std::move(of_kernel));
  absl::c_stable_sort(kernels, [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<std::vector<int>> parts(std::min(static_cast<size_t>(parts_max), kernels.size()));
  for (const std::vector<int>& kernel : kernels) {
    std::vector<int>& shortest = *absl::c_min_element(
        parts, [](const auto& a, const auto& b) { return a.size() < b.size(); });
    shortest.insert(shortest.end(), kernel.begin(), kernel.end());
  }
  return parts;
}

std::vector<int> OthersOf(const Registry& registry,
                          const std::vector<SelfTest::Subject>& subjects) {
  std::vector<int> others;
  for (const SelfTest::Subject& subject : subjects) {
    absl::btree_set<int> runs;  // kernels
    for (const int row : RowsToTry(registry, subject.kind, false))
      runs.insert(RowOf(registry, row).kernel);
    std::vector<int> rows = RowsToTry(registry, subject.kind, true);
    absl::c_stable_sort(rows, [&](int a, int b) {
      const auto key = [&](int id) {
        const int kernel = RowOf(registry, id).kernel;
        return std::pair(runs.contains(kernel), kernel);
      };
      return key(a) < key(b);
    });
    others.insert(others.end(), rows.begin(), rows.end());
  }
  return others;
}

int CountFirst(const Registry& registry, const std::vector<SelfTest::Subject>& subjects) {
  size_t count = 0;
  for (const SelfTest::Subject& subject : subjects)
    count += RowsToTry(registry, subject.kind, false).size();
  return static_cast<int>(count);
}

}  // namespace

std::vector<int> RowsToTry(const Registry& registry, DeviceKind kind, bool slow_to_plan) {
  std::vector<int> rows;
  for (const Row& row : registry.rows()) {
    const Kernel& kernel = registry.kernels()[static_cast<size_t>(row.kernel)];
    if (row.implementation.device_kind == kind && kernel.op->cases != nullptr &&
        row.implementation.slow_to_plan == slow_to_plan)
      rows.push_back(row.id);
  }
  return rows;
}

void ShareRates(const Registry& registry, std::vector<Verdict>* verdicts) {
  const auto row_of = [&](const Verdict& verdict) -> const Row& {
    return RowOf(registry, verdict.row);
  };
  const std::vector<Verdict> measured = *verdicts;
  for (Verdict& verdict : *verdicts) {
    if (verdict.has_rate) continue;
    const auto alike = absl::c_find_if(measured, [&](const Verdict& other) {
      const Row& a = row_of(verdict);
      const Row& b = row_of(other);
      return other.has_rate && a.kernel == b.kernel &&
             a.implementation.family == b.implementation.family &&
             a.implementation.device_kind == b.implementation.device_kind;
    });
    if (alike == measured.end()) continue;
    verdict.has_rate = true;
    verdict.rate = alike->rate;
  }
}

// Checks if the current row has taken too long.
class SelfTest::Watch {
 public:
  Watch(const process::Child& child, int64_t ns_max) : child_(child), ns_max_(ns_max) {}

  void Start() {
    cpu_start_ns_ = child_.CpuNs();
    start_ns_ = MonotonicNs();
  }
  bool expired() const {
    const int64_t passed_ns = MonotonicNs() - start_ns_;
    return passed_ns >= kBusyMachine * ns_max_ ||
           (passed_ns >= ns_max_ && child_.CpuNs() - cpu_start_ns_ >= ns_max_);
  }

 private:
  const process::Child& child_;
  const int64_t ns_max_;
  int64_t cpu_start_ns_ = 0;
  int64_t start_ns_ = MonotonicNs();
};

SelfTest::SelfTest(const Registry& registry, Options options)
    : registry_(registry),
      options_(std::move(options)),
      others_(OthersOf(registry, options_.subjects)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      first_count_(CountFirst(registry, options_.subjects)) {
  for (const Subject& subject : options_.subjects)
    for (std::vector<int>& part :
         PartsOf(registry, RowsToTry(registry, subject.kind, false), subject.children))
      threads_.emplace_back([this, &subject, rows = std::move(part)] {
        TryAll(subject, rows, [this](Verdict verdict) { Keep(std::move(verdict)); });
      });
}

SelfTest::~SelfTest() {
  eventfd_write(stop_, 1);
  for (std::thread& thread : threads_) thread.join();
  close(stop_);
}

void SelfTest::Keep(Verdict verdict) {
  bool is_last = false;
  {
    absl::MutexLock lock(&mutex_);
    verdicts_.push_back(std::move(verdict));
    is_last = static_cast<int>(verdicts_.size()) == first_count_;
  }
  if (is_last) options_.progress(-1, first_count_, first_count_);
}

void SelfTest::ReportBegun(int row) {
  if (RowOf(registry_, row).implementation.slow_to_plan) return;
  int number = 0;
  {
    absl::MutexLock lock(&mutex_);
    number = ++begun_;
  }
  options_.progress(row, number, first_count_);
}

std::vector<Verdict> SelfTest::Await() {
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  absl::MutexLock lock(&mutex_);
  std::vector<Verdict> all = std::exchange(verdicts_, {});
  absl::c_sort(all, [](const Verdict& a, const Verdict& b) { return a.row < b.row; });
  return all;
}

void SelfTest::TryOthers(Tell tell) {
  WARPCALL_DCHECK(tell != nullptr);
  {
    absl::MutexLock lock(&telling_);
    tell_ = std::move(tell);
  }
  for (const Subject& subject : options_.subjects)
    threads_.emplace_back([this, &subject] { TryOthersOf(subject); });
}

void SelfTest::TryOthersOf(const Subject& subject) {
  std::vector<int> rows;
  absl::btree_map<int, int> left;  // rows of a kernel that have no verdict yet
  for (const int id : others_) {
    const Row& row = RowOf(registry_, id);
    if (row.implementation.device_kind != subject.kind) continue;
    rows.push_back(id);
    ++left[row.kernel];
  }
  absl::btree_map<int, std::vector<Verdict>> untold;  // by kernel
  TryAll(subject, std::move(rows), [&](Verdict verdict) {
    const int kernel = RowOf(registry_, verdict.row).kernel;
    untold[kernel].push_back(std::move(verdict));
    if (--left[kernel] > 0) return;
    absl::MutexLock lock(&telling_);
    tell_(std::move(untold[kernel]));
  });
}

void SelfTest::TryAll(const Subject& subject, std::vector<int> rows, const Take& take) {
  while (!rows.empty()) {
    const size_t before = rows.size();
    const absl::Status tried = TrySome(subject, &rows, take);
    if (absl::IsCancelled(tried)) return;
    if (rows.size() < before) continue;
    for (const int row : rows) take(Failed(row, subject.device, tried.message()));
    return;
  }
}

absl::Status SelfTest::TrySome(const Subject& subject, std::vector<int>* rows, const Take& take) {
  std::unique_ptr<process::Child> child;
  ASSIGN_OR_RETURN(child, options_.start(subject.device, *rows));
  // The child is killed on return, even while a row runs.
  const absl::Cleanup end_child = [&child] { child->Kill(); };
  int current = -1;
  const auto done = [&](Verdict verdict) {
    std::erase(*rows, verdict.row);
    current = -1;
    take(std::move(verdict));
  };
  Watch watch(*child, options_.row_ns_max);
  while (!rows->empty()) {
    const absl::StatusOr<Report> report = Next(child->channel(), watch);
    if (!report.ok()) {
      if (current < 0 || absl::IsCancelled(report.status())) return report.status();
      done(Failed(current, subject.device, report.status().message()));
      return absl::OkStatus();
    }
    if (report->kind == Report::Kind::kNoDevice) {
      while (!rows->empty())
        done({.row = rows->back(),
              .device = subject.device,
              .unavailable = {Unavailability::Cause::kDriver, report->text}});
      break;
    }
    if (current < 0 && report->kind == Report::Kind::kStarted &&
        absl::c_linear_search(*rows, report->row)) {
      current = report->row;
      watch.Start();
      ReportBegun(current);
      continue;
    }
    if (current < 0) return absl::UnavailableError("its process crashed between rows");
    if (report->row != current || report->kind == Report::Kind::kStarted) {
      done(Failed(current, subject.device, "its process reported another row"));
      return absl::OkStatus();
    }
    watch.Start();
    done(ToVerdict(*report, subject.device));
    if (report->kind == Report::Kind::kCrashed) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<Report> SelfTest::Next(const process::Channel& channel, const Watch& watch) const {
  pollfd watched[] = {{channel.socket(), POLLIN, 0}, {stop_, POLLIN, 0}};
  for (;;) {
    poll(watched, 2, kLookMs);
    if (watched[1].revents != 0) return absl::CancelledError("nobody waits for it any more");
    if (watched[0].revents != 0) break;
    if (watch.expired())
      return absl::DeadlineExceededError(
          absl::StrCat("took longer than ", static_cast<double>(options_.row_ns_max) / 1e9, " s"));
  }
  return ReceiveReport(channel);
}

}  // namespace warpcall::self_test
