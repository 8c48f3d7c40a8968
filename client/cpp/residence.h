// A tensor's place on the server. Internal to the library.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "warpcall/client.h"
#include "warpcall/tensor.h"

namespace warpcall::client {

// Shared by all copies of a Tensor. Thread-safe.
class Residence {
 public:
  // The tensor and its options, to put it again when the server has lost it.
  struct Source {
    Tensor tensor;
    PutOptions options;
  };

  Residence(std::string handle, TensorSpec spec)
      : spec_(std::move(spec)), handle_(std::move(handle)) {}
  Residence(std::string handle, Source source)
      : spec_{source.tensor.data_type(),
              {source.tensor.shape().begin(), source.tensor.shape().end()}},
        source_(std::move(source)),
        handle_(std::move(handle)) {}

  const TensorSpec& spec() const { return spec_; }
  // Nothing if the tensor can't be put again.
  const std::optional<Source>& source() const { return source_; }

  std::string handle() const {
    absl::MutexLock lock(&mutex_);
    return handle_;
  }
  // True for handle(), and for the one before it, which calls under way may name.
  bool WasNamed(const std::string& handle) const {
    absl::MutexLock lock(&mutex_);
    return handle == handle_ || handle == previous_;
  }

  // The right to put the tensor again: one thread has it at a time, and once a minute.
  enum class Renewal {
    kMine,      // EndRenewal must follow
    kDone,      // another thread has just put it again
    kNoSource,  // nobody has its content
    kTooSoon,   // it was put again less than a minute ago
    kNoTime,    // the call ended while another thread put it again
  };
  // `lost` is the handle that the server no longer has. Waits for another thread that puts the
  // tensor again, as Cancellation::Await does.
  Renewal BeginRenewal(const std::string& lost, Cancellation* cancellation, absl::Time deadline);
  // `handle` is the new one; empty: the tensor could not be put again.
  void EndRenewal(std::string handle);

 private:
  bool NobodyRenews() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !is_renewed_now_; }

  const TensorSpec spec_;
  const std::optional<Source> source_;
  mutable absl::Mutex mutex_;
  std::string handle_ ABSL_GUARDED_BY(mutex_);
  std::string previous_ ABSL_GUARDED_BY(mutex_);
  bool is_renewed_now_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time renewed_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace warpcall::client
