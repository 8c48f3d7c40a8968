#include "client/cpp/calls/byte_ranges.h"

#include <cstdint>
#include <iterator>

#include "proto/common/check.h"

namespace warpcall::client {

bool ByteRanges::Add(int64_t offset, int64_t bytes) {
  WARPCALL_DCHECK(offset >= 0 && bytes >= 0 && bytes <= INT64_MAX - offset, offset, bytes);
  if (bytes == 0) return true;
  const int64_t end = offset + bytes;
  const auto after = ranges_.lower_bound(offset);
  if (after != ranges_.end() && after->first < end) return false;
  const auto before = after == ranges_.begin() ? ranges_.end() : std::prev(after);
  if (before != ranges_.end() && before->second > offset) return false;

  bytes_ += bytes;
  int64_t merged_end = end;
  if (after != ranges_.end() && after->first == end) {
    merged_end = after->second;
    ranges_.erase(after);
  }
  if (before != ranges_.end() && before->second == offset) {
    before->second = merged_end;
  } else {
    ranges_.emplace(offset, merged_end);
  }
  return true;
}

}  // namespace warpcall::client
