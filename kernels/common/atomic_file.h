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
  // Lets everybody read it, and forces it to the disk: a machine that stops leaves the old file or
  // the new one.
  absl::Status Publish();
  // Gives it its name, in the same folder. Replaces a file that has the name.
  absl::Status Commit(const std::string& path);

 private:
  AtomicFile(std::string made, Descriptor file) : made_(std::move(made)), file_(std::move(file)) {}

  std::string made_;  // empty: committed, or moved away
  Descriptor file_;
};

}  // namespace warpcall
