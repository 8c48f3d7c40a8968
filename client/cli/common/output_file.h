// Files that a command writes at its end, found to be writable at its beginning.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/cli/common/interrupt.h"
#include "warpcall/tensor.h"

namespace warpcall::cli {

// "-", and what systems call the same: opened as a file it would be written from its beginning,
// beside what else goes to stdout.
bool NamesStdout(absl::string_view name);

// Checks that WriteOutput would succeed; OK for an empty path, which asks for no file. The error
// gives the path and the system's reason.
absl::Status CheckOutput(const std::string& path);

// Likewise for tensors, which go to stdout too. INVALID_ARGUMENT for an empty path, and for stdout
// if it is a terminal or, with `json`, is wanted for JSON.
absl::Status CheckTensorOutput(const std::string& path, bool json);
// Writes a .npy file, or its bytes to stdout, and tells people when that takes long. REQUIRES: a
// CleanEnd lives.
absl::Status WriteTensor(const std::string& path, const client::Tensor& tensor);

// An option that names a file, and the name; empty: it names none.
struct NamedFile {
  const char* option;
  std::string name;
};

// INVALID_ARGUMENT when two of them name the same file, whether it exists or not.
absl::Status CheckApart(const std::vector<NamedFile>& files);

// While it lives, a signal that ends the program takes what is not complete of files with it. One
// at a time, and not beside another Interrupt.
class CleanEnd {
 public:
  CleanEnd();

 private:
  const Interrupt interrupt_;
};

// The file appears, or replaces what was there, with its last byte.
absl::Status WriteOutput(const std::string& path, absl::string_view bytes);

}  // namespace warpcall::cli
