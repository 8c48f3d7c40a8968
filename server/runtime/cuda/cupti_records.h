// From CUPTI's activity records to activities for people; plain functions.
#pragma once

#include <cupti.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/runtime/device.h"

namespace warpcall::cupti {

// C++'s name of a symbol; the symbol itself when it is not one of C++'s; "unnamed" for null.
std::string Demangle(const char* symbol);

// Nothing for a kind that is not a kernel's, copy's or set's. Times are as in the record: 0 where
// CUPTI had none.
struct Record {
  DeviceActivity activity;
  uint32_t device = 0;  // CUDA's ordinal
};
std::optional<Record> FromCupti(const CUpti_Activity& record);

// What was launched, and what was counted, of the same work.
struct CountedRange {
  std::string number;  // CUPTI's name of the range: launches are numbered in order
  KernelCounters counters;
};
// Gives the ranges the names of the launches, both in order. INTERNAL when there are more or fewer
// of one than of the other.
absl::StatusOr<std::vector<KernelCounters>> NameRanges(std::vector<CountedRange> ranges,
                                                       const std::vector<std::string>& launches);

}  // namespace warpcall::cupti
