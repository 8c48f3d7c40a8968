// A file that appears under its name when it is complete, or not at all. Internal to the library
// and the command line.
#pragma once

#include <sys/stat.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace warpcall::client {

class CompleteFile {
 public:
  // What is at `path` stays until Commit. What is no regular file (a pipe, /dev/null) is opened,
  // and gets bytes as they are written. Errors say the path and the system's reason.
  static absl::StatusOr<std::unique_ptr<CompleteFile>> Create(const std::string& path);
  // What is open already, a pipe or stdout, gets bytes as they are written; `name` is what errors
  // call it.
  static absl::StatusOr<std::unique_ptr<CompleteFile>> Borrow(int descriptor,
                                                              const std::string& name);
  // Whether `path` can be written now. Leaves nothing behind.
  static absl::Status Check(const std::string& path);

  // Without Commit nothing has happened.
  ~CompleteFile();
  CompleteFile(const CompleteFile&) = delete;
  CompleteFile& operator=(const CompleteFile&) = delete;

  absl::Status Write(absl::Span<const char> bytes);
  // Replaces what was there. The last call.
  absl::Status Commit();

 private:
  explicit CompleteFile(const std::string& path);
  CompleteFile(const std::string& name, int descriptor);

  absl::Status Open();
  absl::Status OpenTemporary();
  absl::Status Failed() const;  // by errno

  const std::string path_;
  struct stat facts_ = {};  // of what exists
  const bool exists_;
  const bool in_place_;
  std::string target_;   // path_ without links
  std::string partial_;  // the file's name until Commit; empty: there is none
  int descriptor_ = -1;
};

}  // namespace warpcall::client
