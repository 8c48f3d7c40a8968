#include "server/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>

#include "absl/strings/escaping.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};

std::atomic<int> minimum{static_cast<int>(LogLevel::kInfo)};

bool IsPlain(absl::string_view value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isgraph(c) && c != '"' && c != '=' && c != '\\';
  });
}

void AppendField(absl::string_view key, absl::string_view value, std::string* line) {
  if (IsPlain(value))
    absl::StrAppend(line, " ", key, "=", value);
  else
    absl::StrAppend(line, " ", key, "=\"", absl::CHexEscape(value), "\"");
}

}  // namespace

bool ParseLogLevel(absl::string_view name, LogLevel* level) {
  for (int i = 0; i < 4; ++i) {
    if (name != kNames[i]) continue;
    *level = static_cast<LogLevel>(i);
    return true;
  }
  return false;
}

absl::string_view LogLevelNames() { return "debug, info, warning, error"; }

absl::string_view LogLevelName(LogLevel level) { return kNames[static_cast<int>(level)]; }

void SetLogLevel(LogLevel level) { minimum.store(static_cast<int>(level)); }

LogLevel CurrentLogLevel() {
  return static_cast<LogLevel>(minimum.load(std::memory_order_relaxed));
}

bool LogEnabled(LogLevel level) {
  return static_cast<int>(level) >= minimum.load(std::memory_order_relaxed);
}

void Log(LogLevel level, absl::string_view message, absl::Span<const LogField> fields) {
  if (LogEnabled(level)) LogAlways(level, message, fields);
}

void LogAlways(LogLevel level, absl::string_view message, absl::Span<const LogField> fields) {
  std::string line = absl::StrCat(
      "ts=", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone()),
      " level=", LogLevelName(level));
  AppendField("msg", message, &line);
  for (const LogField& field : fields) AppendField(field.key, field.value, &line);
  line.push_back('\n');
  // One write per line: lines of several threads do not mix. Nothing helps when stderr is gone.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace warpcall
