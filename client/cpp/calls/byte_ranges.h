// Which bytes of a tensor have come. Internal to the library.
#pragma once

#include <cstdint>
#include <map>

namespace warpcall::client {

class ByteRanges {
 public:
  // False, and nothing is added, when a byte of [offset, offset + bytes) was there already.
  // REQUIRES: neither is negative and their sum fits an int64.
  bool Add(int64_t offset, int64_t bytes);

  // Bytes that were added.
  int64_t bytes() const { return bytes_; }

 private:
  // First byte -> byte after the last. Neighbours are merged, so what comes in order is one range.
  std::map<int64_t, int64_t> ranges_;
  int64_t bytes_ = 0;
};

}  // namespace warpcall::client
