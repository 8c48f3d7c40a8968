#include "client/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

namespace warpcall::cli {
namespace {

constexpr mode_t kMode = 0666;  // less the umask

}  // namespace

absl::StatusOr<OutputFile> OutputFile::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, kMode);
  if (descriptor < 0) return absl::ErrnoToStatus(errno, absl::StrCat("can't write ", path));
  return OutputFile(path, descriptor);
}

OutputFile::OutputFile(std::string path, int descriptor)
    : path_(std::move(path)), descriptor_(descriptor) {}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
  if (this == &other) return *this;
  Close();
  path_ = std::move(other.path_);
  descriptor_ = std::exchange(other.descriptor_, -1);
  return *this;
}

OutputFile::~OutputFile() { Close(); }

void OutputFile::Close() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
}

absl::Status OutputFile::Failed(const char* what) const {
  return absl::ErrnoToStatus(errno, absl::StrCat("can't ", what, " ", path_));
}

absl::Status OutputFile::Write(absl::string_view bytes) {
  // Pipes and the like have no length.
  if (ftruncate(descriptor_, 0) != 0 && errno != EINVAL) return Failed("empty");
  while (!bytes.empty()) {
    const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  if (close(std::exchange(descriptor_, -1)) != 0) return Failed("write");
  return absl::OkStatus();
}

}  // namespace warpcall::cli
