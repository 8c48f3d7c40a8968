#include "kernels/cuda/shared_library.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace warpcall::cuda {
namespace {

// dlerror is per thread and says null when there was no error.
absl::string_view LastError() {
  const char* const error = dlerror();
  return error == nullptr ? "no reason given" : error;
}

}  // namespace

absl::StatusOr<SharedLibrary> SharedLibrary::Open(const char* file, absl::string_view needed_by) {
  void* const handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return absl::UnimplementedError(
        absl::StrCat("could not load ", file, ": ", LastError(), "; ", needed_by));
  return SharedLibrary(handle, file);
}

absl::Status SharedLibrary::Find(const char* symbol, void** address) const {
  *address = dlsym(handle_, symbol);
  if (*address != nullptr) return absl::OkStatus();
  return absl::UnimplementedError(
      absl::StrCat(file_, " has no function ", symbol, ": ", LastError()));
}

}  // namespace warpcall::cuda
