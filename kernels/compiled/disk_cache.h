// Files in a folder, each under the hash of what it was made from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/compiled/sha256.h"

namespace warpcall::compiled {

// Any number of processes share a folder, without locks. A rename makes a complete file appear, and
// each read checks it. A full or broken disk causes no errors; a file that can't be written is left
// out. Thread-safe.
class DiskCache {
 public:
  struct Limits {
    // Cubins of generated kernels have some 8 KiB, and at most a million bytes.
    int64_t bytes_max = int64_t{256} << 20;
    // Listing a folder of this many files takes some 5 ms, at each Put.
    int64_t files_max = 4096;
  };
  // Larger data are not kept.
  static constexpr size_t kDataBytesMax = size_t{4} << 20;

  // Makes the folder if there is none, in a folder that is there. INVALID_ARGUMENT names it and the
  // reason why it can't be used: files can't be made there, or everybody can put theirs there.
  static absl::StatusOr<DiskCache> Open(const std::string& folder, const Limits& limits);
  static absl::StatusOr<DiskCache> Open(const std::string& folder) {
    return Open(folder, Limits());
  }
  // Returns Open's error without making the folder.
  static absl::Status Check(const std::string& folder);

  // Returns the data put under `key` and marks them as used now. Removes a file whose contents are
  // not as written.
  std::optional<std::string> Get(const Sha256& key) const;
  // Stores `data`, then removes the least recently used files of all processes beyond the limits.
  void Put(const Sha256& key, absl::string_view data) const;
  // Returns the size of all files in the folder.
  int64_t bytes() const;

 private:
  DiskCache(std::string folder, const Limits& limits)
      : folder_(std::move(folder)), limits_(limits) {}
  std::string PathOf(const Sha256& key) const;
  void Trim() const;

  std::string folder_;
  Limits limits_;
};

}  // namespace warpcall::compiled
