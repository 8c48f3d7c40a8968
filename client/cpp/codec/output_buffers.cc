#include "client/cpp/codec/output_buffers.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"

namespace warpcall::client {

absl::StatusOr<OutputBuffers> OutputBuffers::Allocate(std::vector<TensorSpec> specs) {
  OutputBuffers buffers;
  for (const TensorSpec& spec : specs) {
    ASSIGN_OR_RETURN(const int64_t bytes, ByteCount(spec.data_type, spec.shape));
    buffers.bytes_.push_back(static_cast<size_t>(bytes));
    buffers.memory_.push_back(AllocateBytes(static_cast<size_t>(bytes)));
    if (buffers.memory_.back() == nullptr)
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory here for an output of ", bytes, " bytes"));
  }
  buffers.specs_ = std::move(specs);
  return buffers;
}

std::vector<Tensor> OutputBuffers::Release() {
  std::vector<Tensor> tensors;
  for (size_t i = 0; i < specs_.size(); ++i) {
    const absl::Span<const char> view(memory_[i].get(), bytes_[i]);
    tensors.emplace_back(specs_[i].data_type, std::move(specs_[i].shape), view,
                         std::move(memory_[i]));
  }
  specs_.clear();
  bytes_.clear();
  memory_.clear();
  return tensors;
}

}  // namespace warpcall::client
