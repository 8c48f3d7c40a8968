#include "client/cpp/calls/incoming.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {

absl::Status IncomingTensors::Expect(const std::vector<TensorSpec>& tensors) {
  for (const TensorSpec& tensor : tensors) {
    ASSIGN_OR_RETURN(const int64_t bytes, ByteCount(tensor.data_type, tensor.shape));
    bytes_.push_back(bytes);
  }
  came_.resize(bytes_.size());
  return absl::OkStatus();
}

absl::Status IncomingTensors::Add(Fragments payload, wire::ChunkView* chunk) {
  if (const absl::Status status = wire::ParseChunk(payload, chunk); !status.ok())
    return BadResponse(status.message());
  if (chunk->input_index < 0 || chunk->input_index >= static_cast<int64_t>(came_.size()))
    return BadResponse(
        absl::StrCat("a chunk of output ", chunk->input_index, "; there are ", came_.size()));
  const auto output = static_cast<size_t>(chunk->input_index);
  const auto bytes = static_cast<int64_t>(chunk->data.size);
  if (chunk->offset < 0 || chunk->offset > bytes_[output] || bytes > bytes_[output] - chunk->offset)
    return BadResponse(absl::StrCat("a chunk of ", bytes, " bytes at offset ", chunk->offset,
                                    " of output ", output, ", which has ", bytes_[output]));
  WARPCALL_DCHECK(came_.size() == bytes_.size(), came_.size(), bytes_.size());
  if (!came_[output].Add(chunk->offset, bytes))
    return BadResponse(
        absl::StrCat("bytes of output ", output, " twice: ", bytes, " at offset ", chunk->offset));
  return absl::OkStatus();
}

absl::Status IncomingTensors::CheckComplete() const {
  for (size_t i = 0; i < came_.size(); ++i)
    if (came_[i].bytes() != bytes_[i])
      return BadResponse(absl::StrCat("the end of the answer after ", came_[i].bytes(), " of the ",
                                      bytes_[i], " bytes of output ", i));
  return absl::OkStatus();
}

}  // namespace warpcall::client
