// Maps part of a POSIX shared memory object of this host. Other processes may shrink the object at
// any time, and access to a lost page would end the process (SIGBUS). Lost pages are therefore
// replaced by zeros, as Wayland servers do for their clients' buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace warpcall::oip {

class MappedRegion {
 public:
  // The `bytes` bytes from `offset` on of the object `key` ("/" and a name). INVALID_ARGUMENT where
  // there is no such object, or it ends before them; RESOURCE_EXHAUSTED when kRegionsMax are
  // mapped.
  static absl::StatusOr<std::shared_ptr<MappedRegion>> Map(const std::string& key, uint64_t offset,
                                                           uint64_t bytes);
  ~MappedRegion();
  MappedRegion(const MappedRegion&) = delete;
  MappedRegion& operator=(const MappedRegion&) = delete;

  static constexpr size_t kRegionsMax = 1024;

  char* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }
  // Returns true if an access found a page lost.
  bool lost() const;

 private:
  MappedRegion() = default;

  size_t watch_ = kRegionsMax;  // index of the signal handler's watch
  char* mapped_ = nullptr;      // start of the page that holds the first byte
  size_t mapped_bytes_ = 0;
  char* data_ = nullptr;
  uint64_t bytes_ = 0;
};

}  // namespace warpcall::oip
