#include "server/runtime/cuda/recordings.h"

#include <algorithm>
#include <atomic>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "kernels/cuda/stream_kernels.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

// The first launches of a graph take longer; the median of the distances counts.
constexpr int kCalibrationReplays = 15;
static_assert(cuda::SmallCopies::kCountMax == RecordedCopies::kCountMax);

bool IsAligned(const void* memory) {
  return reinterpret_cast<uintptr_t>(memory) % sizeof(uint4) == 0;
}

absl::StatusOr<cuda::SmallCopies> ToSmallCopies(absl::Span<const RecordedCopies::Copy> copies) {
  cuda::SmallCopies small;
  size_t bytes = 0;
  for (const RecordedCopies::Copy& copy : copies) {
    if (copy.bytes == 0) continue;
    bytes += copy.bytes;
    if (small.count == cuda::SmallCopies::kCountMax || bytes > RecordedCopies::kBytesMax ||
        !IsAligned(copy.to) || !IsAligned(copy.from))
      return absl::InvalidArgumentError(
          absl::StrCat(copies.size(), " copies, of ", bytes, " bytes and more, are not recorded"));
    small.copies[small.count++] = {copy.to, copy.from, copy.bytes};
  }
  return small;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Recordings>> Recordings::Create(CudaDevice* device,
                                                               cudaStream_t stream) {
  std::unique_ptr<Recordings> recordings(new Recordings(device, stream));
  RETURN_IF_ERROR(recordings->Allocate());
  RETURN_IF_ERROR(recordings->Calibrate());
  return recordings;
}

absl::Status Recordings::Allocate() {
  graphs_.resize(kSlots);
  ASSIGN_OR_RETURN(times_, device_->AllocateMemory(kSlots * sizeof(cuda::WorkTimes), stream_));
  ASSIGN_OR_RETURN(reports_, device_->AllocateStaging(kSlots * sizeof(cuda::WorkTimes)));
  return absl::OkStatus();
}

absl::Status Recordings::Calibrate() {
  // A kernel is loaded by its first launch, which a recording is not.
  RETURN_IF_ERROR(Capture(0, [] { return absl::OkStatus(); }, {}));
  int slot;
  ASSIGN_OR_RETURN(slot, Record([] { return absl::OkStatus(); }));
  std::vector<int64_t> gaps;
  for (int i = 0; i < kCalibrationReplays; ++i) {
    RETURN_IF_ERROR(Replay(slot));
    RETURN_IF_ERROR(device_->Check(cudaStreamSynchronize(stream_), "waiting for the device"));
    gaps.push_back(Times(slot).kernel_ns);
  }
  Forget(slot);
  const auto median = gaps.begin() + kCalibrationReplays / 2;
  std::nth_element(gaps.begin(), median, gaps.end());
  gap_ns_ = *median;
  return absl::OkStatus();
}

absl::Status Recordings::Capture(int slot, absl::FunctionRef<absl::Status()> enqueue,
                                 const RecordedCopies& copies) {
  ASSIGN_OR_RETURN(const cuda::SmallCopies inputs, ToSmallCopies(copies.inputs));
  ASSIGN_OR_RETURN(const cuda::SmallCopies outputs, ToSmallCopies(copies.outputs));
  auto* const times = static_cast<cuda::WorkTimes*>(times_.data()) + slot;
  RETURN_IF_ERROR(cuda::EnqueueBegin(stream_, inputs, times));
  RETURN_IF_ERROR(enqueue());
  return cuda::EnqueueReport(stream_, outputs, times, report(slot));
}

absl::StatusOr<int> Recordings::Record(absl::FunctionRef<absl::Status()> enqueue,
                                       const RecordedCopies& copies) {
  const auto free = std::find_if(graphs_.begin(), graphs_.end(),
                                 [](const auto& graph) { return graph.get() == nullptr; });
  if (free == graphs_.end())
    return absl::ResourceExhaustedError(absl::StrCat("all ", kSlots, " recordings are in use"));
  const auto slot = static_cast<int>(std::distance(graphs_.begin(), free));
  RETURN_IF_ERROR(device_->Check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal),
                                 "beginning a graph"));
  absl::Status status = Capture(slot, enqueue, copies);
  cudaGraph_t graph = nullptr;
  status.Update(device_->Check(cudaStreamEndCapture(stream_, &graph), "ending a graph"));
  cudaGraphExec_t executable = nullptr;
  if (status.ok())
    status = device_->Check(cudaGraphInstantiate(&executable, graph, 0), "instantiating a graph");
  if (graph != nullptr) cudaGraphDestroy(graph);
  RETURN_IF_ERROR(status);
  *free = cuda::GraphHandle(executable);
  return slot;
}

absl::Status Recordings::Replay(int recording) {
  report(recording)->end_ns = 0;
  WARPCALL_DCHECK(graphs_[recording].get() != nullptr, recording);
  return device_->Check(cudaGraphLaunch(graphs_[recording].get(), stream_), "launching a graph");
}

bool Recordings::IsDone(int recording) const {
  return std::atomic_ref<int64_t>(report(recording)->end_ns).load(std::memory_order_acquire) != 0;
}

StreamTimes Recordings::Times(int recording) const {
  const cuda::WorkTimes& times = *report(recording);
  return {.h2d_ns = times.begin_ns - times.start_ns,
          .kernel_ns = std::max<int64_t>(0, times.done_ns - times.begin_ns - gap_ns_),
          .d2h_ns = times.end_ns - times.done_ns};
}

void Recordings::Forget(int recording) {
  WARPCALL_CHECK(recording >= 0 && recording < kSlots, recording);
  graphs_[recording] = cuda::GraphHandle();
}

}  // namespace warpcall
