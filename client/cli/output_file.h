// A file that a command writes at its end, found to be writable at its beginning.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::cli {

class OutputFile {
 public:
  // What the file holds stays until Write. The error says the path and the system's reason.
  static absl::StatusOr<OutputFile> Open(const std::string& path);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&& other) noexcept;
  ~OutputFile();

  // Replaces what the file held. Once.
  absl::Status Write(absl::string_view bytes);

 private:
  OutputFile(std::string path, int descriptor);
  absl::Status Failed(const char* what) const;
  void Close();

  std::string path_;
  int descriptor_ = -1;
};

}  // namespace warpcall::cli
