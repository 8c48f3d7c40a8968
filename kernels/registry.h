// The closed list of kernels and their implementations; everything that enumerates (metrics,
// ListKernels, conformance, benchmarks) reads it. Select chooses a row by the order of preference.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "kernels/check/cases.h"
#include "kernels/op.h"

namespace warpcall {

// The reason why a machine can't run a row.
struct Unavailability {
  enum class Cause : uint8_t {
    kDriver,
    kLibrary,
    kSelfTest,
    kCompile,
    kNotTried,  // its trial is still missing
  };

  Cause cause = Cause::kSelfTest;
  std::string reason;  // empty: it can
};
const char* CauseName(Unavailability::Cause cause);

// Holds the reason why a row is not offered. Threads may read it while the registry changes it.
class Availability {
 public:
  Availability() = default;
  // For rows that no other thread reads yet.
  Availability(const Availability& other) : why_not_(other.why_not()) {}
  Availability& operator=(const Availability&) = delete;

  // Null: it is. The registry keeps what it points to.
  const Unavailability* why_not() const { return why_not_.load(std::memory_order_acquire); }
  bool is_offered() const { return why_not() == nullptr; }
  bool is_not_tried() const {
    const Unavailability* const why = why_not();
    return why != nullptr && why->cause == Unavailability::Cause::kNotTried;
  }

 private:
  friend class Registry;

  std::atomic<const Unavailability*> why_not_{nullptr};
};

struct Row {
  int id;      // dense, 0 .. rows().size() - 1
  int kernel;  // index into kernels()
  Implementation implementation;
  Availability availability = {};
  std::vector<Allowance> deviations = {};  // the op's allowances for the row that deviate
};

// "cuda:two_pass".
std::string PinnedName(const Implementation& row);

struct Kernel {
  int id;  // dense, 0 .. kernels().size() - 1
  const Op* op;
  std::vector<int> rows;  // ids, in order of preference

  // False for a kernel whose problems the server makes.
  bool is_named() const { return op->infer_outputs != nullptr; }
};

// Filled by the catalogs before the server starts. Afterwards only the rows' availability changes;
// const members are thread-safe, also during SetAvailability.
class Registry {
 public:
  // Appends `rows` to the menu of `op`, which must outlive the registry. Rows of one op have
  // distinct names, whatever their device: metrics know a row by kernel and name.
  void Add(const Op& op, absl::Span<const Implementation> rows);

  // Makes Select skip the row and report the reason, or offer the row if the reason is empty.
  // REQUIRES: one thread at a time.
  void SetAvailability(int row, Unavailability why_not);

  absl::Span<const Kernel> kernels() const { return kernels_; }
  absl::Span<const Row> rows() const { return rows_; }

  // The kernel that a request names. NOT_FOUND lists those that exist.
  absl::StatusOr<const Kernel*> Find(absl::string_view name) const;

  // OK when `requested` is empty, "auto", a family of `kernel` ("cuda"), or one of its rows: by its
  // name alone or after its family's ("cuda:two_pass"). NOT_FOUND lists them otherwise.
  absl::Status CheckImplementationName(const Kernel& kernel, absl::string_view requested) const;

  // The first row in order of preference that matches `requested` (as above), runs on `device` and
  // supports `problem`. "auto" matches no row that deviates for the problem's data type, even where
  // only the reference is left. UNIMPLEMENTED gives each matching row's reason; UNAVAILABLE does,
  // where a row that was not tried yet would do.
  absl::StatusOr<const Row*> Select(const Kernel& kernel, absl::string_view requested,
                                    const Problem& problem, const DeviceProperties& device) const {
    return Select(kernel, requested, absl::MakeConstSpan(&problem, 1), device);
  }
  // Selects for several problems that differ in size alone; the row must support every one.
  // REQUIRES: `problems` is not empty.
  absl::StatusOr<const Row*> Select(const Kernel& kernel, absl::string_view requested,
                                    absl::Span<const Problem> problems,
                                    const DeviceProperties& device) const {
    return Select(kernel, {requested, problems, [](const Row&) { return absl::OkStatus(); }},
                  device);
  }
  // Among which rows to choose, and for what: as above.
  struct Wish {
    absl::string_view requested;
    absl::Span<const Problem> problems;
    // OK for a row that may be chosen, or why not.
    absl::FunctionRef<absl::Status(const Row&)> allows;
  };
  absl::StatusOr<const Row*> Select(const Kernel& kernel, const Wish& wish,
                                    const DeviceProperties& device) const;

  // Returns true if `requested` (as above) leaves the choice among all rows to the server.
  static bool IsAuto(absl::string_view requested) {
    return requested.empty() || requested == "auto";
  }
  // Returns true if `requested` (as above) names `row`; "auto" names all.
  static bool Matches(const Row& row, absl::string_view requested);
  // Returns true if `requested` names no row but `row`.
  static bool Pins(const Row& row, absl::string_view requested);
  // Returns OK, or why `row` does not take `problem` on `device`: UNAVAILABLE when only its trial
  // is missing, UNIMPLEMENTED otherwise.
  static absl::Status CheckRuns(const Row& row, const Problem& problem,
                                const DeviceProperties& device);
  // As CheckRuns, for a row that `requested` matches: "auto" is refused rows that deviate.
  static absl::Status CheckServes(const Row& row, absl::string_view requested,
                                  const Problem& problem, const DeviceProperties& device);
  // Returns why "auto" leaves the row out for `type`; null if "auto" does not.
  static const char* WhyNotAuto(const Row& row, DataType type);

 private:
  std::vector<Kernel> kernels_;
  std::vector<Row> rows_;
  std::deque<Unavailability> reasons_;  // all that were ever given: readers may hold any
};

// The catalogs: one line per op. A build without CUDA has only the first. Rows that are added first
// are preferred.
void AddCpuKernels(Registry* registry);
void AddCudaKernels(Registry* registry);
// The kernel that breaks a GPU, for tests.
void AddFaultKernels(Registry* registry);
// Kernels of the CPU for tests: rows that do not pass a self-test, and one that waits.
void AddBrokenKernels(Registry* registry);

}  // namespace warpcall
