#include "server/transport/chunk_assembler.h"

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

// Shorter data are gathered, and such whose pieces are shorter on average. A piece costs some 150
// bytes beside its own.
constexpr int64_t kShortDataBytes = 1024;
constexpr int64_t kSplinterBytes = 256;
// The size of the pieces that short chunks are gathered to.
constexpr int64_t kGatheredBytesMax = 64 << 10;

int64_t SizeOf(const grpc::Slice& slice) { return static_cast<int64_t>(slice.size()); }

}  // namespace

int64_t ChunkAssembler::Piece::size() const {
  return gathered.empty() ? SizeOf(slice) : static_cast<int64_t>(gathered.size());
}

ChunkAssembler::~ChunkAssembler() {
  Slices together;
  for (auto& [offset, piece] : pieces_) together.Add(std::move(piece.slice));
  pieces_.clear();
}

absl::Status ChunkAssembler::Add(int64_t offset, const Slices& data) {
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
      next != pieces_.begin() && std::prev(next)->first + std::prev(next)->second.size() > offset;
  if (offset < taken_ || overlaps_next || overlaps_previous)
    return absl::InvalidArgumentError(absl::StrCat("bytes ", offset, " to ", offset + size - 1,
                                                   " come in part or whole for the second time"));
  held_ += size;
  if (size < kShortDataBytes || size < kSplinterBytes * static_cast<int64_t>(data.size())) {
    Gather(offset, data);
  } else {
    int64_t at = offset;
    for (const grpc::Slice& slice : data) {
      if (slice.size() > 0) pieces_.emplace_hint(next, at, Piece{slice, ""});
      at += SizeOf(slice);
    }
  }
  if (offset != complete_) return absl::OkStatus();
  complete_ += size;
  for (auto piece = pieces_.lower_bound(complete_);
       piece != pieces_.end() && piece->first == complete_; ++piece)
    complete_ += piece->second.size();
  WARPCALL_DCHECK(taken_ <= complete_ && complete_ <= bytes_, taken_, complete_, bytes_);
  WARPCALL_DCHECK(held_ >= complete_ - taken_, held_, complete_, taken_);
  return absl::OkStatus();
}

void ChunkAssembler::Gather(int64_t offset, const Slices& data) {
  std::string* gathered = nullptr;
  const auto next = pieces_.lower_bound(offset);
  if (next != pieces_.begin()) {
    const auto before = std::prev(next);
    Piece& piece = before->second;
    if (!piece.gathered.empty() && before->first + piece.size() == offset)
      gathered = &piece.gathered;
  }
  for (const grpc::Slice& slice : data) {
    if (slice.size() == 0) continue;
    if (gathered == nullptr || static_cast<int64_t>(gathered->size()) >= kGatheredBytesMax)
      gathered = &pieces_.emplace_hint(next, offset, Piece())->second.gathered;
    gathered->append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    offset += SizeOf(slice);
    gathered_bytes_ += SizeOf(slice);
  }
}

grpc::Slice ChunkAssembler::ToSlice(Piece piece) {
  if (piece.gathered.empty()) return std::move(piece.slice);
  auto* owner = new std::string(std::move(piece.gathered));
  return grpc::Slice(
      owner->data(), owner->size(), [](void* p) { delete static_cast<std::string*>(p); }, owner);
}

Slices ChunkAssembler::Take(int64_t count) {
  WARPCALL_CHECK(count >= 0 && count <= complete_ - taken_, count, complete_, taken_);
  Slices taken;
  held_ -= count;
  while (count > 0) {
    WARPCALL_CHECK(!pieces_.empty() && pieces_.begin()->first == taken_, taken_, count);
    grpc::Slice piece = ToSlice(std::move(pieces_.extract(pieces_.begin()).mapped()));
    const int64_t size = SizeOf(piece);
    if (size > count) {
      // Short parts have no reference to what was received: the last one goes as Slices' do.
      const Slices whole = {piece};
      pieces_.emplace_hint(
          pieces_.begin(), taken_ + count,
          Piece{piece.sub(static_cast<size_t>(count), static_cast<size_t>(size)), ""});
      piece = piece.sub(0, static_cast<size_t>(count));
    }
    const int64_t part = SizeOf(piece);
    taken_ += part;
    count -= part;
    taken.Add(std::move(piece));
  }
  return taken;
}

}  // namespace warpcall
