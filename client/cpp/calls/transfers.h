// Tensors that stay on the server: Put and Get, and putting again what the server has lost.
// Internal to the library.
#pragma once

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/cpp/codec/resident_codec.h"
#include "client/cpp/rpc/connections.h"
#include "warpcall/client.h"

namespace warpcall::client {

// Thread-safe.
class Transfers {
 public:
  // `connections` outlives it.
  explicit Transfers(Connections* connections) : connections_(connections) {}

  // As Client's.
  absl::StatusOr<Resident> Put(const Tensor& tensor, const PutOptions& options);
  absl::StatusOr<Tensor> Get(const std::string& handle, absl::Duration timeout);

  // After a call with `inputs` ended with `refusal`. OK if handles were lost and every input that
  // they named has been put again: the call can be made once more. Otherwise `refusal`, which then
  // says why an input was not put again.
  absl::Status PutAgain(absl::Span<const Tensor> inputs, const absl::Status& refusal,
                        const CallTerms& terms);
  // `end` of the call that was made once more; it says so if handles were lost again.
  static absl::Status LostAgain(const absl::Status& end);

 private:
  absl::StatusOr<Placed> Send(const Tensor& tensor, PutOptions options, const CallTerms& terms);
  // Returns why the input was not put again, in a sentence; empty if it was.
  std::string PutAgain(const Tensor& input, const std::string& lost, const CallTerms& terms);

  Connections* const connections_;
  absl::Mutex mutex_;
  // The device of the last Put that named none; empty: none yet.
  std::string device_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall::client
