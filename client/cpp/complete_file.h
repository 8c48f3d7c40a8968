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
  // Keeps the existing file at `path` until Commit; follows links, also dangling ones. A path that
  // is not a regular file (a pipe, /dev/null) is opened and written immediately. Errors name the
  // path and the reason, also when Commit can't put the file in its place.
  static absl::StatusOr<std::unique_ptr<CompleteFile>> Create(const std::string& path);
  // Writes to an open descriptor, such as a pipe or stdout: bytes go out with each Write. Errors
  // call it `name`.
  static absl::StatusOr<std::unique_ptr<CompleteFile>> Borrow(int descriptor,
                                                              const std::string& name);
  // Checks that `path` can be written now. Leaves nothing behind.
  static absl::Status Check(const std::string& path);
  // Before a signal ends the process: removes what is not committed, of all files, and lets none
  // begin or be committed any more. Not to be called by a signal's handler.
  static void RemoveAllPartial();

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
  absl::Status CheckReplaceable() const;
  absl::Status Failed() const;  // by errno

  const std::string path_;
  struct stat facts_ = {};  // the existing file's
  const int stat_errno_;
  const bool exists_;
  const bool in_place_;
  std::string target_;   // path_ without links
  std::string partial_;  // the file's name until Commit; empty: there is none
  int descriptor_ = -1;
};

}  // namespace warpcall::client
