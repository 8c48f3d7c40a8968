#include "server/inspect/stolen_time.h"

#include <fcntl.h>
#include <unistd.h>

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace warpcall::inspect {
namespace {

// "cpu  52052 6579 12855 21349 391 0 87 174 0 0": user, nice, system, idle, iowait, irq, softirq,
// steal.
constexpr size_t kStealWord = 8;

}  // namespace

StolenTime::StolenTime(const std::string& path) : file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

StolenTime::~StolenTime() {
  if (file_ >= 0) close(file_);
}

int64_t StolenTime::Ns() const {
  char text[256];
  const ssize_t size = file_ < 0 ? -1 : pread(file_, text, sizeof(text), 0);
  if (size <= 0) return 0;
  absl::string_view line(text, static_cast<size_t>(size));
  line = line.substr(0, line.find('\n'));
  const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
  int64_t ticks = 0;
  if (words.size() <= kStealWord || !absl::SimpleAtoi(words[kStealWord], &ticks)) return 0;
  return ticks * (1'000'000'000 / sysconf(_SC_CLK_TCK));
}

}  // namespace warpcall::inspect
