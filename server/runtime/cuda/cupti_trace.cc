#include "server/runtime/cuda/cupti_trace.h"

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "proto/common/status_macros.h"
#include "server/runtime/cuda/cupti_records.h"

namespace warpcall::cupti {
namespace {

constexpr CUpti_ActivityKind kKinds[] = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                         CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET};

// The size of one of CUPTI's buffers: some ten thousand records of 200 bytes.
constexpr size_t kBufferBytes = size_t{2} << 20;
constexpr size_t kBufferAlignmentBytes = 8;
// Activities kept, at some 200 bytes and a name each.
constexpr size_t kActivitiesMax = size_t{1} << 18;

uint64_t MonotonicNow() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000 + static_cast<uint64_t>(now.tv_nsec);
}

// Collects the records of CUPTI's callbacks, which run on CUPTI's threads and any others.
class Collector {
 public:
  void Begin(const Api* api, uint32_t device) {
    absl::MutexLock lock(&mutex_);
    api_ = api;
    device_ = device;
    activities_.clear();
    lost_ = 0;
  }

  // Takes what there is, and nothing more from now on.
  std::vector<DeviceActivity> End(int64_t* lost) {
    absl::MutexLock lock(&mutex_);
    api_ = nullptr;
    *lost = lost_;
    return std::exchange(activities_, {});
  }

  void Add(uint8_t* buffer, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    if (api_ == nullptr || bytes == 0) return;
    CUpti_Activity* activity = nullptr;
    while (api_->ActivityGetNextRecord(buffer, bytes, &activity) == CUPTI_SUCCESS) Add(*activity);
  }

 private:
  void Add(const CUpti_Activity& activity) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::optional<Record> record = FromCupti(activity);
    if (!record.has_value() || record->device != device_) return;
    // Missing or wrong times: CUPTI had no device memory to write them to.
    const DeviceActivity& found = record->activity;
    const bool timed = found.start_ns != 0 && found.end_ns >= found.start_ns;
    if (timed && activities_.size() < kActivitiesMax)
      activities_.push_back(std::move(record->activity));
    else
      ++lost_;
  }

  absl::Mutex mutex_;
  const Api* api_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint32_t device_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<DeviceActivity> activities_ ABSL_GUARDED_BY(mutex_);
  int64_t lost_ ABSL_GUARDED_BY(mutex_) = 0;
};

Collector& GlobalCollector() {
  static Collector& collector = *new Collector;
  return collector;
}

void CUPTIAPI GiveBuffer(uint8_t** buffer, size_t* bytes, size_t* records_max) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kBufferAlignmentBytes, kBufferBytes));
  *bytes = *buffer == nullptr ? 0 : kBufferBytes;
  *records_max = 0;  // as many as fit
}

// CUpti_BuffersCallbackCompleteFunc's arguments: context, stream, buffer, bytes, valid bytes.
template <typename... Arguments>
void CUPTIAPI TakeBuffer(Arguments... arguments) {
  const auto all = std::make_tuple(arguments...);
  uint8_t* const buffer = std::get<2>(all);
  GlobalCollector().Add(buffer, std::get<4>(all));
  std::free(buffer);
}

// Returns CLOCK_MONOTONIC less CUPTI's clock, from the sample that took least time.
absl::StatusOr<int64_t> OffsetNs(const Api& api) {
  constexpr int kSamples = 20;
  int64_t best_ns = std::numeric_limits<int64_t>::max();
  int64_t offset_ns = 0;
  for (int i = 0; i < kSamples; ++i) {
    uint64_t theirs = 0;
    const auto before = static_cast<int64_t>(MonotonicNow());
    RETURN_IF_ERROR(api.ToStatus(api.GetTimestamp(&theirs), "asking CUPTI for the time"));
    const int64_t took_ns = static_cast<int64_t>(MonotonicNow()) - before;
    if (took_ns >= best_ns) continue;
    best_ns = took_ns;
    offset_ns = before + took_ns / 2 - static_cast<int64_t>(theirs);
  }
  return offset_ns;
}

}  // namespace

Trace::~Trace() {
  if (running_) Stop().status().IgnoreError();
}

void Trace::Disable() {
  for (const CUpti_ActivityKind kind : kKinds) api_.ActivityDisable(kind);
}

// CUPTI writes the records in our clock where it takes one, which has to be before any kind is
// enabled; otherwise they are moved.
absl::Status Trace::PrepareClock() {
  offset_ns_ = 0;
  if (api_.ActivityRegisterTimestampCallback(MonotonicNow) == CUPTI_SUCCESS)
    return absl::OkStatus();
  ASSIGN_OR_RETURN(offset_ns_, OffsetNs(api_));
  return absl::OkStatus();
}

absl::Status Trace::Start() {
  if (running_) return absl::FailedPreconditionError("a trace is running");
  RETURN_IF_ERROR(PrepareClock());
  RETURN_IF_ERROR(api_.ToStatus(api_.ActivityRegisterCallbacks(GiveBuffer, TakeBuffer),
                                "handing CUPTI buffers for its records"));
  size_t dropped = 0;  // before this trace
  api_.ActivityGetNumDroppedRecords(nullptr, 0, &dropped);
  GlobalCollector().Begin(&api_, static_cast<uint32_t>(device_));
  for (const CUpti_ActivityKind kind : kKinds) {
    const absl::Status status = api_.ToStatus(
        api_.ActivityEnable(kind), absl::StrCat("enabling CUPTI's records of kind ", kind));
    if (status.ok()) continue;
    Disable();
    return status;
  }
  running_ = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<DeviceActivity>> Trace::Stop() {
  if (!running_) return absl::FailedPreconditionError("no trace is running");
  running_ = false;
  absl::Status status = api_.ToStatus(api_.ActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED),
                                      "collecting CUPTI's records");
  Disable();
  size_t dropped = 0;
  status.Update(api_.ToStatus(api_.ActivityGetNumDroppedRecords(nullptr, 0, &dropped),
                              "asking CUPTI how many records it dropped"));
  int64_t lost = 0;
  std::vector<DeviceActivity> activities = GlobalCollector().End(&lost);
  RETURN_IF_ERROR(status);
  lost += static_cast<int64_t>(dropped);
  if (lost > 0)
    return absl::DataLossError(absl::StrCat("the trace lacks ", lost, " records besides the ",
                                            activities.size(), " that it has; it holds ",
                                            kActivitiesMax, " at most"));
  for (DeviceActivity& activity : activities) {
    activity.start_ns += offset_ns_;
    activity.end_ns += offset_ns_;
  }
  std::stable_sort(activities.begin(), activities.end(),
                   [](const auto& a, const auto& b) { return a.start_ns < b.start_ns; });
  return activities;
}

}  // namespace warpcall::cupti
