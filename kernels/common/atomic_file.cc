#include "kernels/common/atomic_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

absl::Status Failed() { return absl::UnavailableError(strerror(errno)); }

}  // namespace

absl::StatusOr<AtomicFile> AtomicFile::Create(const std::string& prefix) {
  std::string made = absl::StrCat(prefix, "XXXXXX");
  Descriptor file(mkostemp(made.data(), O_CLOEXEC));
  if (file.get() < 0) return Failed();
  return AtomicFile(std::move(made), std::move(file));
}

AtomicFile::~AtomicFile() {
  if (!made_.empty()) unlink(made_.c_str());
}

absl::Status AtomicFile::Write(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(file_.get(), bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return Failed();
    bytes.remove_prefix(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status AtomicFile::Publish() {
  const bool done =
      fchmod(file_.get(), S_IRUSR | S_IWUSR | S_IRGRP | S_IROTH) == 0 && fsync(file_.get()) == 0;
  return done ? absl::OkStatus() : Failed();
}

absl::Status AtomicFile::Commit(const std::string& path) {
  if (rename(made_.c_str(), path.c_str()) != 0) return Failed();
  made_.clear();
  return absl::OkStatus();
}

}  // namespace warpcall
