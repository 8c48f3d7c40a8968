// Counts a process's compilations, for the metrics.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/common/duration_buckets.h"

namespace warpcall::compiled {

struct Counts {
  // Each since the process began, but for memory_bytes, which is as it is now.
  enum Field : size_t {
    kMemoryHits,
    kMemoryMisses,
    kDiskHits,
    kDiskMisses,
    kMemoryBytes,
    kCompileNs,  // total of all compilations, failed ones too
    kFields,
  };

  std::array<int64_t, kFields> fields = {};
  std::array<int64_t, kBucketCount> compilations = {};  // by duration: see BucketOf

  int64_t& operator[](Field field) { return fields[field]; }
  int64_t operator[](Field field) const { return fields[field]; }

  Counts& operator+=(const Counts& other) {
    for (size_t i = 0; i < fields.size(); ++i) fields[i] += other.fields[i];
    for (size_t i = 0; i < compilations.size(); ++i) compilations[i] += other.compilations[i];
    return *this;
  }

  // Merges counts of the same process, whether later or earlier ones.
  void Advance(const Counts& other) {
    for (size_t i = 0; i < fields.size(); ++i) fields[i] = std::max(fields[i], other.fields[i]);
    for (size_t i = 0; i < compilations.size(); ++i)
      compilations[i] = std::max(compilations[i], other.compilations[i]);
    fields[kMemoryBytes] = other[kMemoryBytes];
  }
};

}  // namespace warpcall::compiled
