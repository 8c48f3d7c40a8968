// Move-only owners of CUDA's streams, events and graphs.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

namespace warpcall::cuda {

template <typename T, cudaError_t (*Destroy)(T)>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T handle) : handle_(handle) {}
  Handle(Handle&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  // On a lost device destroying fails, and there is nothing left to free.
  ~Handle() {
    if (handle_ != nullptr) Destroy(handle_);
  }

  T get() const { return handle_; }

 private:
  T handle_ = nullptr;
};

using StreamHandle = Handle<cudaStream_t, cudaStreamDestroy>;
using GraphHandle = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;
using EventHandle = Handle<cudaEvent_t, cudaEventDestroy>;

}  // namespace warpcall::cuda
