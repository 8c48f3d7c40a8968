#include "server/access/small_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace warpcall {
namespace {

constexpr size_t kBytesMax = size_t{1} << 20;

absl::Status Unreadable(const std::string& flag, const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, ": ", path, ": ", why));
}

}  // namespace

absl::StatusOr<std::string> ReadSmallFile(const std::string& flag, const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Unreadable(flag, path, strerror(errno));
  std::string text(kBytesMax + 1, '\0');
  size_t size = 0;
  ssize_t bytes;
  while (size < text.size() && ((bytes = read(file, text.data() + size, text.size() - size)) > 0 ||
                                (bytes < 0 && errno == EINTR)))
    size += bytes > 0 ? static_cast<size_t>(bytes) : 0;
  const int error = errno;
  close(file);
  if (size > kBytesMax)
    return Unreadable(flag, path, absl::StrCat("has more than ", kBytesMax, " bytes"));
  if (bytes < 0) return Unreadable(flag, path, strerror(error));
  text.resize(size);
  return text;
}

}  // namespace warpcall
