// Converts CUPTI's activity records to activities for people; plain functions.
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

// Empty for a kind other than a kernel's, copy's or set's. Times are as in the record: 0 if CUPTI
// had none.
struct Record {
  DeviceActivity activity;
  uint32_t device = 0;  // CUDA's ordinal
};
std::optional<Record> FromCupti(const CUpti_Activity& record);

// The counters of one launch, under CUPTI's name of the range.
struct CountedRange {
  std::string number;  // launches are numbered in order
  KernelCounters counters;
};
// Replaces the ranges' names by the launches' names, both in order. INTERNAL when there are more or
// fewer ranges than launches.
absl::StatusOr<std::vector<KernelCounters>> NameRanges(std::vector<CountedRange> ranges,
                                                       const std::vector<std::string>& launches);

}  // namespace warpcall::cupti
