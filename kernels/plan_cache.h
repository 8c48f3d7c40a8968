// Caches the plans of one device, each made at its first use.
#pragma once

#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/plan.h"
#include "kernels/registry.h"

namespace warpcall {

// Thread-safe. A plan that is forgotten lives on until its last user is done.
class PlanCache {
 public:
  using Made = absl::StatusOr<PlanPtr>;

  static constexpr size_t kPlansMax = 1024;
  static constexpr size_t kCompiledPlansMax = 16;

  // Plan::Traits::is_compiled marks compiled plans. REQUIRES: both limits are > 0.
  explicit PlanCache(size_t plans_max = kPlansMax, size_t compiled_plans_max = kCompiledPlansMax);
  ~PlanCache();

  // Returns the cached plan or UNIMPLEMENTED of `row` and `problem`. Otherwise returns the result
  // of `make` and keeps a plan or UNIMPLEMENTED; other errors may pass. While one thread makes an
  // entry, other threads that need the same entry wait for it.
  Made GetOrMake(const Row& row, const Problem& problem, absl::FunctionRef<Made()> make);

  // Call before destroying anything that plans depend on.
  void Clear();

  size_t size() const;

 private:
  struct Plans;
  const std::unique_ptr<Plans> plans_;
};

}  // namespace warpcall
