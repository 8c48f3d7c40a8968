#include "client/cli/common/input_file.h"

#include <cerrno>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace warpcall::cli {

absl::StatusOr<std::string> ReadInputFile(const std::string& path, size_t bytes_max) {
  constexpr size_t kStep = size_t{1} << 20;
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text;
  for (size_t got = kStep; got == kStep && text.size() <= bytes_max;) {
    const size_t begin = text.size();
    text.resize(begin + kStep);
    file.read(text.data() + begin, kStep);
    got = static_cast<size_t>(file.gcount());
    text.resize(begin + got);
  }
  if (!file.is_open() || file.bad())
    return absl::ErrnoToStatus(errno == 0 ? EIO : errno, absl::StrCat("can't read ", path));
  if (text.size() > bytes_max)
    return absl::InvalidArgumentError(
        absl::StrCat(path, " has more than ", bytes_max, " bytes, the most that are read"));
  return text;
}

}  // namespace warpcall::cli
