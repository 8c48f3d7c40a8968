#include "kernels/cuda/cudnn_handles.h"

#include <algorithm>

#include "proto/common/status_macros.h"

namespace warpcall::cuda {

CudnnLease::~CudnnLease() {
  if (owner_ != nullptr) owner_->Release(index_);
}

CudnnHandles::~CudnnHandles() {
  const absl::StatusOr<const CudnnApi*> api = LoadCudnn();
  if (!api.ok()) return;
  absl::MutexLock lock(&mutex_);
  for (const Entry& entry : entries_) {
    if (entry.handle != nullptr) (*api)->Destroy(entry.handle);
  }
}

absl::StatusOr<CudnnLease> CudnnHandles::Acquire(cudaStream_t stream) {
  ASSIGN_OR_RETURN(const CudnnApi* const api, LoadCudnn());
  Entry entry;
  const size_t index = Take(stream, &entry);
  CudnnLease lease(this, index, entry.handle);
  if (entry.handle != nullptr && entry.stream == stream) return lease;
  // Creating a handle takes long, so the lock is free: the entry is marked in use.
  if (entry.handle == nullptr)
    RETURN_IF_ERROR(api->ToStatus(api->Create(&entry.handle), "creating a cuDNN handle"));
  lease.handle_ = entry.handle;
  const cudnnStatus_t status = api->SetStream(entry.handle, stream);
  entry.stream = status == CUDNN_STATUS_SUCCESS ? stream : nullptr;
  Store(index, entry);
  RETURN_IF_ERROR(api->ToStatus(status, "giving a cuDNN handle its stream"));
  return lease;
}

size_t CudnnHandles::Take(cudaStream_t stream, Entry* entry) {
  const auto rank = [&](const Entry& candidate) {
    if (candidate.in_use) return 3;
    if (candidate.handle == nullptr) return 1;
    return candidate.stream == stream ? 0 : 2;
  };
  absl::MutexLock lock(&mutex_);
  mutex_.Await(absl::Condition(this, &CudnnHandles::AnyFree));
  Entry* const best =
      std::min_element(entries_.begin(), entries_.end(),
                       [&](const Entry& a, const Entry& b) { return rank(a) < rank(b); });
  best->in_use = true;
  *entry = *best;
  return static_cast<size_t>(best - entries_.begin());
}

void CudnnHandles::Store(size_t index, const Entry& entry) {
  absl::MutexLock lock(&mutex_);
  entries_[index] = entry;
}

void CudnnHandles::Release(size_t index) {
  absl::MutexLock lock(&mutex_);
  entries_[index].in_use = false;
}

bool CudnnHandles::AnyFree() const {
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return !entry.in_use; });
}

}  // namespace warpcall::cuda
