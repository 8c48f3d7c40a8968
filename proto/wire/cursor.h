// Reads and writes protobuf's wire format by hand, over bytes that lie in fragments. Internal to
// this folder.
#pragma once

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "proto/common/check.h"
#include "proto/wire/tensor_split.h"

namespace warpcall::wire {

enum WireType : uint32_t { kVarint, kFixed64, kLength, kStartGroup, kEndGroup, kFixed32 };

// protobuf's parser refuses longer fields (INT_MAX less its 16 bytes of slop).
inline constexpr uint64_t kLengthMax = INT_MAX - 16;

inline void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

inline size_t VarintBytes(uint64_t value) {
  size_t bytes = 1;
  for (; value >= 0x80; value >>= 7) ++bytes;
  return bytes;
}

constexpr uint32_t Tag(uint32_t field, WireType type) { return field << 3 | type; }

// Reads forward over fragments, never past a limit that nested messages narrow.
class Cursor {
 public:
  explicit Cursor(absl::Span<const Bytes> fragments) : fragments_(fragments) {
    for (const Bytes& fragment : fragments) limit_ += fragment.size();
    NextFragment();
  }

  size_t position() const { return position_; }
  size_t remaining() const { return limit_ - position_; }
  bool AtLimit() const { return position_ == limit_; }

  // REQUIRES: bytes <= remaining(). Returns the old limit for PopLimit.
  size_t PushLimit(size_t bytes) {
    WARPCALL_CHECK(bytes <= remaining(), bytes, remaining());
    const size_t old = limit_;
    limit_ = position_ + bytes;
    return old;
  }
  void PopLimit(size_t old) {
    WARPCALL_DCHECK(old >= limit_ && position_ <= limit_, old, limit_, position_);
    limit_ = old;
  }

  // Reads a varint of at most `bytes_max` bytes; drops bits beyond 64, as protobuf does.
  bool ReadVarint(int bytes_max, uint64_t* value) {
    WARPCALL_DCHECK(bytes_max >= 1 && bytes_max <= 10, bytes_max);
    uint64_t result = 0;
    for (int i = 0; i < bytes_max; ++i) {
      if (AtLimit()) return false;
      const auto byte = static_cast<uint8_t>(*at_);
      Advance(1);
      result |= static_cast<uint64_t>(byte & 0x7F) << (7 * i);
      if (byte < 0x80) {
        *value = result;
        return true;
      }
    }
    return false;
  }

  bool ReadTag(uint32_t* tag) {
    uint64_t value;
    if (!ReadVarint(5, &value)) return false;
    *tag = static_cast<uint32_t>(value);
    return *tag >> 3 != 0;
  }

  bool ReadLength(size_t* length) {
    uint64_t value;
    if (!ReadVarint(5, &value) || value > kLengthMax || value > remaining()) return false;
    *length = value;
    return true;
  }

  // Steps over `bytes` <= remaining() and reports each piece.
  template <typename Visitor>
  void Take(size_t bytes, Visitor visit) {
    WARPCALL_CHECK(bytes <= remaining(), bytes, remaining());
    while (bytes > 0) {
      const size_t piece = std::min(bytes, static_cast<size_t>(end_ - at_));
      visit(Bytes(at_, piece));
      Advance(piece);
      bytes -= piece;
    }
  }

 private:
  void Advance(size_t bytes) {
    at_ += bytes;
    position_ += bytes;
    if (at_ == end_) NextFragment();
  }

  void NextFragment() {
    while (at_ == end_ && next_ < fragments_.size()) {
      at_ = fragments_[next_].data();
      end_ = at_ + fragments_[next_].size();
      ++next_;
    }
  }

  absl::Span<const Bytes> fragments_;
  size_t next_ = 0;
  const char* at_ = nullptr;
  const char* end_ = nullptr;
  size_t position_ = 0;
  size_t limit_ = 0;
};

}  // namespace warpcall::wire
