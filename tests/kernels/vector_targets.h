// The instruction sets that vectorised rows were compiled for, one by one.
#pragma once

#include <cstdint>
#include <vector>

namespace warpcall::testing {

// Those that this CPU has, best first.
std::vector<int64_t> VectorTargets();
const char* VectorTargetName(int64_t target);

// Makes Highway's dispatch choose `target` while it lives. For one thread at a time.
class ScopedVectorTarget {
 public:
  explicit ScopedVectorTarget(int64_t target);
  ~ScopedVectorTarget();
  ScopedVectorTarget(const ScopedVectorTarget&) = delete;
  ScopedVectorTarget& operator=(const ScopedVectorTarget&) = delete;
};

}  // namespace warpcall::testing
