#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/common/descriptor.h"

namespace warpcall {

// A file that appears under its name only when it is complete, even if the process ends early or
// others write the same name. Errors are UNAVAILABLE with the system's reason.
class AtomicFile {
 public:
  // Makes a file with a new name that begins with `prefix`. Only its owner can read the file.
  static absl::StatusOr<AtomicFile> Create(const std::string& prefix);

  AtomicFile(AtomicFile&& other) noexcept
      : made_(std::exchange(other.made_, "")), file_(std::move(other.file_)) {}
  AtomicFile& operator=(AtomicFile&&) = delete;
  // Removes what was not committed.
  ~AtomicFile();

  absl::Status Write(absl::string_view bytes);
  // Makes the file readable for everybody and syncs it to disk: after a machine stops, either the
  // old or the new file is there.
  absl::Status Publish();
  // Renames the file to `path`, in the same folder. Replaces an existing file.
  absl::Status Commit(const std::string& path);

 private:
  AtomicFile(std::string made, Descriptor file) : made_(std::move(made)), file_(std::move(file)) {}

  std::string made_;  // empty: committed, or moved away
  Descriptor file_;
};

}  // namespace warpcall
