#include "server/runtime/cuda/cupti_records.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace warpcall::cupti {
namespace {

const char* CopyName(uint8_t kind) {
  switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD:
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOA:
      return "copy to device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH:
    case CUPTI_ACTIVITY_MEMCPY_KIND_ATOH:
      return "copy to host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOH:
      return "copy on host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_PTOP:
      return "copy between devices";
    default:
      return "copy on device";
  }
}

// Copies the fields that all records have under the same names.
template <typename CuptiRecord>
Record Common(const CuptiRecord& from, DeviceActivity::Kind kind, std::string name) {
  Record record;
  record.device = from.deviceId;
  record.activity.kind = kind;
  record.activity.name = std::move(name);
  record.activity.start_ns = static_cast<int64_t>(from.start);
  record.activity.end_ns = static_cast<int64_t>(from.end);
  record.activity.stream = from.streamId;
  return record;
}

Record FromKernel(const CUpti_ActivityKernel10& kernel) {
  Record record = Common(kernel, DeviceActivity::Kind::kKernel, Demangle(kernel.name));
  DeviceActivity& activity = record.activity;
  activity.registers_per_thread = kernel.registersPerThread;
  activity.shared_memory_bytes =
      int64_t{kernel.staticSharedMemory} + int64_t{kernel.dynamicSharedMemory};
  const int32_t grid[] = {kernel.gridX, kernel.gridY, kernel.gridZ};
  const int32_t block[] = {kernel.blockX, kernel.blockY, kernel.blockZ};
  std::copy_n(grid, 3, activity.grid);
  std::copy_n(block, 3, activity.block);
  return record;
}

}  // namespace

std::string Demangle(const char* symbol) {
  if (symbol == nullptr || *symbol == '\0') return "unnamed";
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
  return status == 0 && name != nullptr ? name.get() : symbol;
}

std::optional<Record> FromCupti(const CUpti_Activity& record) {
  // Records are packed: members are read by value, and newer versions only append to them.
  switch (record.kind) {
    case CUPTI_ACTIVITY_KIND_KERNEL:
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL:
      return FromKernel(reinterpret_cast<const CUpti_ActivityKernel10&>(record));
    case CUPTI_ACTIVITY_KIND_MEMCPY: {
      const auto& copy = reinterpret_cast<const CUpti_ActivityMemcpy6&>(record);
      Record result = Common(copy, DeviceActivity::Kind::kCopy, CopyName(copy.copyKind));
      result.activity.bytes = static_cast<int64_t>(copy.bytes);
      return result;
    }
    case CUPTI_ACTIVITY_KIND_MEMSET: {
      const auto& set = reinterpret_cast<const CUpti_ActivityMemset4&>(record);
      Record result = Common(set, DeviceActivity::Kind::kSet, "set");
      result.activity.bytes = static_cast<int64_t>(set.bytes);
      return result;
    }
    default:
      return std::nullopt;
  }
}

absl::StatusOr<std::vector<KernelCounters>> NameRanges(std::vector<CountedRange> ranges,
                                                       const std::vector<std::string>& launches) {
  if (ranges.size() != launches.size())
    return absl::InternalError(absl::StrCat("CUPTI counted ", ranges.size(), " kernels, but ",
                                            launches.size(), " were launched (",
                                            absl::StrJoin(launches, ", "), ")"));
  std::vector<std::pair<int64_t, KernelCounters>> numbered;
  for (size_t i = 0; i < ranges.size(); ++i) {
    int64_t number;
    if (!absl::SimpleAtoi(ranges[i].number, &number))
      return absl::InternalError(absl::StrCat("CUPTI names a kernel's range \"", ranges[i].number,
                                              "\", which is no number"));
    numbered.emplace_back(number, std::move(ranges[i].counters));
  }
  std::sort(numbered.begin(), numbered.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<KernelCounters> counters;
  for (size_t i = 0; i < numbered.size(); ++i) {
    counters.push_back(std::move(numbered[i].second));
    counters.back().name = launches[i];
  }
  return counters;
}

}  // namespace warpcall::cupti
