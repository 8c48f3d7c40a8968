// Permissions and limits of principals, as a policy file lists them.
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

// The permissions and limits of one principal.
struct Policy {
  using Names = absl::btree_set<std::string>;
  // Without a value everything is allowed.
  std::optional<Names> methods;          // "Execute"
  std::optional<Names> kernels;          // "gelu"
  std::optional<Names> implementations;  // "two_pass", or families: "cuda"
  std::optional<Names> devices;          // "cuda:0"
  // Share of a device's time relative to other principals, whose default is 1.
  double share = 1;
  int64_t requests_in_flight_max = std::numeric_limits<int64_t>::max();
  int64_t pushes_in_flight_max = std::numeric_limits<int64_t>::max();  // of the requests
  int64_t bytes_in_flight_max = std::numeric_limits<int64_t>::max();   // tensor bytes
  int64_t resident_bytes_max = std::numeric_limits<int64_t>::max();    // of tensors on devices
  // Label of the principal's calls in metrics: its name. Empty: counted with all others.
  std::string label = {};
};

// A parsed policy file; deploy/README.md documents the format.
class PolicyTable {
 public:
  // INVALID_ARGUMENT names the fault and its place: invalid JSON, a key that is unknown or
  // repeated, a value of the wrong kind or out of range, a method that is not in `methods`.
  static absl::StatusOr<PolicyTable> Parse(absl::string_view text, const Policy::Names& methods);

  // Returns the principal's own policy, or else the default, or else null. An empty `name` stands
  // for principals without a name, which get the default.
  std::shared_ptr<const Policy> Of(absl::string_view name) const;

  size_t size() const { return principals_.size(); }
  const absl::btree_map<std::string, std::shared_ptr<const Policy>>& principals() const {
    return principals_;
  }
  // Most principals in a file that get labels of their own.
  static constexpr size_t kLabelsMax = 50;
  std::vector<std::string> labels() const;

 private:
  std::shared_ptr<const Policy> default_;
  absl::btree_map<std::string, std::shared_ptr<const Policy>> principals_;
};

}  // namespace warpcall
