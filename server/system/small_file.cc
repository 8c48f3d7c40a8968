#include "server/system/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

constexpr size_t kReadBytes = 64 << 10;

std::string About(const std::string& flag, const std::string& path, absl::string_view what) {
  return absl::StrCat("--", flag, ": ", path, ": ", what);
}

const char* KindOf(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISCHR(mode)) return "a character device";
  return S_ISBLK(mode) ? "a block device" : "something else";
}

absl::Status FailedCall(const std::string& flag, const std::string& path, int error) {
  const std::string text = About(flag, path, strerror(error));
  return error == ENOENT ? absl::NotFoundError(text) : absl::UnavailableError(text);
}

absl::Status CheckRegular(const std::string& flag, const std::string& path, mode_t mode) {
  if (S_ISREG(mode)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      About(flag, path, absl::StrCat("is ", KindOf(mode), ", not a regular file")));
}

}  // namespace

absl::Status CheckRegularFile(const std::string& flag, const std::string& path) {
  struct stat found;
  if (stat(path.c_str(), &found) != 0) return FailedCall(flag, path, errno);
  return CheckRegular(flag, path, found.st_mode);
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& flag, const std::string& path,
                                          size_t bytes_max) {
  RETURN_IF_ERROR(CheckRegularFile(flag, path));
  // It may be another by now: a FIFO that nobody writes to, or a leased file, must not block.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file < 0) return FailedCall(flag, path, errno);
  const absl::Cleanup close_file = [file] { close(file); };
  struct stat opened;
  if (fstat(file, &opened) != 0) return FailedCall(flag, path, errno);
  RETURN_IF_ERROR(CheckRegular(flag, path, opened.st_mode));
  std::string text;
  for (size_t size = 0;;) {
    text.resize(std::min(size + kReadBytes, bytes_max + 1));
    const ssize_t bytes = read(file, text.data() + size, text.size() - size);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return FailedCall(flag, path, errno);
    size += static_cast<size_t>(bytes);
    if (size > bytes_max)
      return absl::InvalidArgumentError(
          About(flag, path, absl::StrCat("has more than ", bytes_max, " bytes")));
    if (bytes > 0) continue;
    text.resize(size);
    return text;
  }
}

}  // namespace warpcall
