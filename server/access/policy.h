// What principals may do, as a file of policies says.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall {

// What one principal may do, and how much of it at a time.
struct Policy {
  using Names = absl::btree_set<std::string>;
  // Nothing there: all.
  std::optional<Names> methods;          // "Execute"
  std::optional<Names> kernels;          // "gelu"
  std::optional<Names> implementations;  // "two_pass", or families: "cuda"
  std::optional<Names> devices;          // "cuda:0"
  // Of a device's time beside others that want it, whose share is 1 unless a policy says otherwise.
  double share = 1;
  int64_t requests_in_flight_max = std::numeric_limits<int64_t>::max();
  int64_t bytes_in_flight_max = std::numeric_limits<int64_t>::max();  // of their tensors
  // The label under which its requests are counted: its principal's name. Empty: with all others.
  std::string label = {};
};

// deploy/README.md tells how the file is written.
class PolicyTable {
 public:
  // INVALID_ARGUMENT names what is wrong and where: no JSON, a key that is unknown or given twice,
  // a value of another kind or out of range, a method that is not one of `methods`.
  static absl::StatusOr<PolicyTable> Parse(absl::string_view text, const Policy::Names& methods);

  // The principal's own, or else the default; null where there is neither. `name` is empty for
  // those who have none, who have the default.
  std::shared_ptr<const Policy> Of(absl::string_view name) const;

  size_t size() const { return principals_.size(); }
  // Principals have labels of their own where a file names at most so many.
  static constexpr size_t kLabelsMax = 50;
  std::vector<std::string> labels() const;

 private:
  std::shared_ptr<const Policy> default_;
  absl::btree_map<std::string, std::shared_ptr<const Policy>> principals_;
};

}  // namespace warpcall
