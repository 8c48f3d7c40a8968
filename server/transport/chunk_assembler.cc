#include "server/transport/chunk_assembler.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

int64_t SizeOf(const grpc::Slice& slice) { return static_cast<int64_t>(slice.size()); }

}  // namespace

absl::Status ChunkAssembler::Add(int64_t offset, std::vector<grpc::Slice> data) {
  int64_t size = 0;
  for (const grpc::Slice& piece : data) size += SizeOf(piece);
  if (offset < 0 || offset > bytes_ || size > bytes_ - offset)
    return absl::InvalidArgumentError(absl::StrCat("a chunk of ", size, " bytes at offset ", offset,
                                                   " does not lie in the tensor's ", bytes_,
                                                   " bytes"));
  if (size == 0) return absl::OkStatus();
  const auto next = pieces_.lower_bound(offset);
  const bool overlaps_next = next != pieces_.end() && next->first < offset + size;
  const bool overlaps_previous =
      next != pieces_.begin() && std::prev(next)->first + SizeOf(std::prev(next)->second) > offset;
  if (offset < taken_ || overlaps_next || overlaps_previous)
    return absl::InvalidArgumentError(absl::StrCat("bytes ", offset, " to ", offset + size - 1,
                                                   " come in part or whole for the second time"));
  held_ += size;
  for (grpc::Slice& piece : data) {
    const int64_t piece_size = SizeOf(piece);
    if (piece_size > 0) pieces_.emplace_hint(next, offset, std::move(piece));
    offset += piece_size;
  }
  for (auto piece = pieces_.lower_bound(complete_);
       piece != pieces_.end() && piece->first == complete_; ++piece)
    complete_ += SizeOf(piece->second);
  return absl::OkStatus();
}

std::vector<grpc::Slice> ChunkAssembler::Take(int64_t count) {
  std::vector<grpc::Slice> taken;
  held_ -= count;
  while (count > 0) {
    auto first = pieces_.extract(pieces_.begin());
    grpc::Slice& piece = first.mapped();
    const int64_t size = SizeOf(piece);
    if (size > count) {
      pieces_.emplace_hint(pieces_.begin(), taken_ + count,
                           piece.sub(static_cast<size_t>(count), static_cast<size_t>(size)));
      piece = piece.sub(0, static_cast<size_t>(count));
    }
    const int64_t part = SizeOf(piece);
    taken_ += part;
    count -= part;
    taken.push_back(std::move(piece));
  }
  return taken;
}

}  // namespace warpcall
