#include "server/self_test/self_test.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall::self_test {
namespace {

constexpr int kLookMs = 50;
constexpr int64_t kBusyMachine = 6;

// CPU time of a process; 0 when there is none.
int64_t CpuNs(pid_t pid) {
  clockid_t clock;
  timespec time;
  if (pid <= 0 || clock_getcpuclockid(pid, &clock) != 0 || clock_gettime(clock, &time) != 0)
    return 0;
  return int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

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

}  // namespace

std::vector<int> RowsToTry(const Registry& registry, DeviceKind kind) {
  std::vector<int> rows;
  for (const Row& row : registry.rows()) {
    const Kernel& kernel = registry.kernels()[static_cast<size_t>(row.kernel)];
    if (row.implementation.device_kind == kind && kernel.op->cases != nullptr)
      rows.push_back(row.id);
  }
  absl::c_stable_sort(rows, [&](int a, int b) {
    const auto is_reference = [&](int id) {
      return registry.rows()[static_cast<size_t>(id)].implementation.family == Family::kReference;
    };
    return is_reference(a) && !is_reference(b);
  });
  return rows;
}

void ShareRates(const Registry& registry, std::vector<Verdict>* verdicts) {
  const auto row_of = [&](const Verdict& verdict) -> const Row& {
    return registry.rows()[static_cast<size_t>(verdict.row)];
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

// Tells whether the row under way takes too long.
class SelfTest::Watch {
 public:
  explicit Watch(int64_t ns_max) : ns_max_(ns_max) {}

  void Start(pid_t pid) {
    pid_ = pid;
    cpu_start_ns_ = CpuNs(pid);
    start_ns_ = MonotonicNs();
  }
  bool expired() const {
    const int64_t passed_ns = MonotonicNs() - start_ns_;
    return passed_ns >= kBusyMachine * ns_max_ ||
           (passed_ns >= ns_max_ && CpuNs(pid_) - cpu_start_ns_ >= ns_max_);
  }

 private:
  const int64_t ns_max_;
  pid_t pid_ = 0;
  int64_t cpu_start_ns_ = 0;
  int64_t start_ns_ = MonotonicNs();
};

SelfTest::SelfTest(const Registry& registry, Options options)
    : registry_(registry),
      options_(std::move(options)),
      stop_(eventfd(0, EFD_CLOEXEC)),
      verdicts_(options_.subjects.size()) {
  for (size_t i = 0; i < options_.subjects.size(); ++i)
    threads_.emplace_back([this, i] { TryAll(options_.subjects[i], &verdicts_[i]); });
}

SelfTest::~SelfTest() {
  eventfd_write(stop_, 1);
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
  close(stop_);
}

std::vector<Verdict> SelfTest::Await() {
  std::vector<Verdict> all;
  for (size_t i = 0; i < threads_.size(); ++i) {
    threads_[i].join();
    for (Verdict& verdict : verdicts_[i]) all.push_back(std::move(verdict));
  }
  absl::c_sort(all, [](const Verdict& a, const Verdict& b) { return a.row < b.row; });
  return all;
}

void SelfTest::TryAll(const Subject& subject, std::vector<Verdict>* verdicts) {
  std::vector<int> rows = RowsToTry(registry_, subject.kind);
  while (!rows.empty()) {
    const size_t before = rows.size();
    const absl::Status tried = TrySome(subject, &rows, verdicts);
    if (absl::IsCancelled(tried)) return;
    if (rows.size() < before) continue;
    for (const int row : rows) verdicts->push_back(Failed(row, subject.device, tried.message()));
    return;
  }
}

absl::Status SelfTest::TrySome(const Subject& subject, std::vector<int>* rows,
                               std::vector<Verdict>* verdicts) {
  ASSIGN_OR_RETURN(const int socket, options_.start(subject.device, *rows));
  const absl::Cleanup end_child = [socket] { close(socket); };
  int current = -1;
  const auto done = [&](Verdict verdict) {
    std::erase(*rows, verdict.row);
    current = -1;
    verdicts->push_back(std::move(verdict));
  };
  Watch watch(options_.row_ns_max);
  while (!rows->empty()) {
    const absl::StatusOr<Report> report = Next(socket, watch);
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
      watch.Start(report->pid);
      continue;
    }
    if (current < 0) return absl::UnavailableError("its process crashed between rows");
    if (report->row != current || report->kind == Report::Kind::kStarted) {
      done(Failed(current, subject.device, "its process reported another row"));
      return absl::OkStatus();
    }
    watch.Start(report->pid);
    done(ToVerdict(*report, subject.device));
    if (report->kind == Report::Kind::kCrashed) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<Report> SelfTest::Next(int socket, const Watch& watch) const {
  pollfd watched[] = {{socket, POLLIN, 0}, {stop_, POLLIN, 0}};
  for (;;) {
    poll(watched, 2, kLookMs);
    if (watched[1].revents != 0) return absl::CancelledError("nobody waits for it any more");
    if (watched[0].revents != 0) break;
    if (watch.expired())
      return absl::DeadlineExceededError(
          absl::StrCat("took longer than ", static_cast<double>(options_.row_ns_max) / 1e9, " s"));
  }
  return Receive(socket);
}

}  // namespace warpcall::self_test
