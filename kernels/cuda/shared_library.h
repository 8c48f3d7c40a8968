// Libraries that are opened at run time, so that a server without them starts all the same and only
// the rows that need them refuse.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace warpcall::cuda {

// A library that was opened and stays so for the life of the process: what it registered (threads,
// contexts, exit handlers) does not survive being unloaded.
class SharedLibrary {
 public:
  // `file` is searched for as dlopen does. UNIMPLEMENTED names it, dlerror's reason, and
  // `needed_by`, which ends the message: "the cublaslt row needs it".
  static absl::StatusOr<SharedLibrary> Open(const char* file, absl::string_view needed_by);

  // UNIMPLEMENTED names the symbol and the library when it has none of that name.
  template <typename Function>
  absl::Status Resolve(const char* symbol, Function** function) const {
    void* address = nullptr;
    absl::Status status = Find(symbol, &address);
    *function = reinterpret_cast<Function*>(address);
    return status;
  }

 private:
  SharedLibrary(void* handle, std::string file) : handle_(handle), file_(std::move(file)) {}
  absl::Status Find(const char* symbol, void** address) const;

  void* handle_;
  std::string file_;
};

}  // namespace warpcall::cuda
