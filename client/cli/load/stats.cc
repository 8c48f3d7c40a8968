#include "client/cli/load/stats.h"

#include <vector>

#include "warpcall/tensor.h"

namespace warpcall::cli {
namespace {

int64_t TensorBytes(const std::vector<client::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const client::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.data().size());
  return bytes;
}

// gRPC hands on whatever number a server sent.
size_t CodeIndex(absl::StatusCode code) {
  const auto index = static_cast<size_t>(code);
  return index < LoadStats::kCodeCount ? index : static_cast<size_t>(absl::StatusCode::kUnknown);
}

}  // namespace

void LoadStats::Record(const LoadTimes& times, const client::Call& call,
                       const absl::StatusOr<client::Result>& result) {
  lateness_.Record(times.sent_ns - times.planned_ns);
  const size_t code = CodeIndex(result.status().code());
  if (result.ok()) {
    latency_.Record(times.done_ns - times.planned_ns);
    RecordOk(call, *result);
  } else {
    failed_latency_.Record(times.done_ns - times.planned_ns);
    if (codes_[code].Get() == 0) messages_[code] = std::string(result.status().message());
  }
  codes_[code].Add(1);
}

void LoadStats::RecordOk(const client::Call& call, const client::Result& result) {
  for (size_t i = 0; i < std::size(kLoadPhases); ++i)
    phases_[i].Record(result.timing.*kLoadPhases[i].duration_ns);
  input_bytes_.Add(TensorBytes(call.inputs));
  output_bytes_.Add(TensorBytes(result.outputs));
  retries_.Add(result.attempts - 1);
}

void LoadStats::Merge(const LoadStats& other) {
  for (size_t i = 0; i < codes_.size(); ++i) {
    if (codes_[i].Get() == 0) messages_[i] = other.messages_[i];
    codes_[i].Add(other.codes_[i].Get());
  }
  latency_.Merge(other.latency_);
  failed_latency_.Merge(other.failed_latency_);
  lateness_.Merge(other.lateness_);
  for (size_t i = 0; i < phases_.size(); ++i) phases_[i].Merge(other.phases_[i]);
  input_bytes_.Add(other.input_bytes());
  output_bytes_.Add(other.output_bytes());
  retries_.Add(other.retries());
}

int64_t LoadStats::Sent() const {
  int64_t sent = 0;
  for (const LoadCounter& counter : codes_) sent += counter.Get();
  return sent;
}

}  // namespace warpcall::cli
