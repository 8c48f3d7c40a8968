// Tries rows on the cases of their op on the machine at hand, against the op's definition.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "kernels/check/cases.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/registry.h"

namespace warpcall {

enum class CheckDepth : uint8_t {
  kQuick,  // the op's quick cases; of the others one for each type that takes none of those
  kFull,   // the quick and all others
};

// Runs a row once on operands in host memory, which hold what the row finds: outputs too.
using RowRunner = std::function<absl::Status(const Implementation& row, const Problem& problem,
                                             const Operands& host)>;

struct CheckResult {
  // OK if every case that the row took came out right. Otherwise the first failure; UNIMPLEMENTED,
  // with the row's own reason, if it took no case.
  absl::Status status;
  int cases = 0;
  std::vector<DataType> data_types;  // types of this row with at least one case
};

// Used by one thread. The registry and the device's properties outlive it.
class SelfCheck {
 public:
  struct Options {
    CheckDepth depth = CheckDepth::kQuick;
    RowRunner run;                    // on the device
    cpu::ThreadPool* pool = nullptr;  // for what is compared with
  };

  SelfCheck(const Registry& registry, const DeviceProperties& device, Options options);
  ~SelfCheck();

  // REQUIRES: the row's op has cases and a definition.
  CheckResult Check(const Row& row);

 private:
  struct Trial;  // a problem with its inputs and the truth of it

  absl::Status CheckType(const Row& row, DataType type, CheckResult* result);
  absl::Status CheckCase(const Row& row, const Case& tried, DataType type, CheckResult* result);
  std::shared_ptr<const Trial> TrialOf(const Op& op, const Case& tried, const Problem& problem);
  const OpCases& CasesOf(const Op& op);

  const Registry& registry_;
  const DeviceProperties& device_;
  const Options options_;
  std::map<const Op*, OpCases> cases_;
  // Trials made for earlier implementations and kept for the next one, up to a limit.
  std::map<std::tuple<const Case*, DataType>, std::shared_ptr<const Trial>> trials_;
  size_t trials_bytes_ = 0;
};

}  // namespace warpcall
