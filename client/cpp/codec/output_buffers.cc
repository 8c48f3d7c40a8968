#include "client/cpp/codec/output_buffers.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

std::string TextOf(const TensorSpec& spec) {
  return absl::StrCat(DataTypeName(spec.data_type), "[", absl::StrJoin(spec.shape, ","), "]");
}

// The caller's memory, which nobody here owns.
absl::StatusOr<std::shared_ptr<char[]>> Lend(const Destination& destination,
                                             const TensorSpec& output, int64_t bytes) {
  if (!(destination.spec == output))
    return absl::InvalidArgumentError(
        absl::StrCat("out is ", TextOf(destination.spec), "; the result is ", TextOf(output)));
  if (destination.data.size() != static_cast<size_t>(bytes))
    return absl::InvalidArgumentError(absl::StrCat("out has ", destination.data.size(), " bytes; ",
                                                   TextOf(output), " takes ", bytes));
  return std::shared_ptr<char[]>(std::shared_ptr<char[]>(), destination.data.data());
}

}  // namespace

absl::StatusOr<OutputBuffers> OutputBuffers::Allocate(std::vector<TensorSpec> specs,
                                                      absl::Span<const Destination> destinations) {
  if (destinations.size() > specs.size())
    return absl::InvalidArgumentError(absl::StrCat("memory for ", destinations.size(),
                                                   " outputs; the result has ", specs.size()));
  OutputBuffers buffers;
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSIGN_OR_RETURN(const int64_t bytes, ByteCount(specs[i].data_type, specs[i].shape));
    buffers.bytes_.push_back(static_cast<size_t>(bytes));
    if (i < destinations.size()) {
      ASSIGN_OR_RETURN(std::shared_ptr<char[]> lent, Lend(destinations[i], specs[i], bytes));
      buffers.memory_.push_back(std::move(lent));
      continue;
    }
    buffers.memory_.push_back(AllocateBytes(static_cast<size_t>(bytes)));
    if (buffers.memory_.back() == nullptr)
      return absl::ResourceExhaustedError(
          absl::StrCat("no memory here for an output of ", bytes, " bytes"));
  }
  buffers.specs_ = std::move(specs);
  return buffers;
}

std::vector<Tensor> OutputBuffers::Release() {
  WARPCALL_DCHECK(memory_.size() == specs_.size() && bytes_.size() == specs_.size(), memory_.size(),
                  specs_.size());
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
