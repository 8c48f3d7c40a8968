#include "server/log/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>

#include "absl/strings/escaping.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/common/utf8.h"
#include "server/log/log_writer.h"

namespace warpcall {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
constexpr const char* kFormatNames[] = {"logfmt", "json"};

std::atomic<int> minimum{static_cast<int>(LogLevel::kInfo)};
std::atomic<LogFormat> format_now{LogFormat::kLogfmt};

bool IsPlain(absl::string_view value) {
  return !value.empty() && std::all_of(value.begin(), value.end(), [](unsigned char c) {
    return std::isgraph(c) && c != '"' && c != '=' && c != '\\';
  });
}

// Cuts a value to kLogValueBytesMax, since operators read no more of a client's text. Cuts between
// characters of UTF-8.
std::string Bounded(absl::string_view value) {
  if (value.size() <= kLogValueBytesMax) return std::string(value);
  size_t end = kLogValueBytesMax;
  const auto continues = [&] { return (static_cast<unsigned char>(value[end]) & 0xC0) == 0x80; };
  while (end > kLogValueBytesMax - 3 && continues()) --end;
  return absl::StrCat(value.substr(0, end), "... (", value.size(), " bytes)");
}

void AppendField(absl::string_view key, absl::string_view value, std::string* line) {
  if (IsPlain(value))
    absl::StrAppend(line, " ", key, "=", value);
  else
    // An apostrophe means nothing in logfmt.
    absl::StrAppend(line, " ", key, "=\"",
                    absl::StrReplaceAll(absl::CHexEscape(value), {{"\\'", "'"}}), "\"");
}

std::string LogfmtLine(absl::string_view time, absl::string_view level, absl::string_view message,
                       absl::Span<const LogField> fields) {
  std::string line = absl::StrCat("ts=", time, " level=", level);
  AppendField("msg", Bounded(message), &line);
  for (const LogField& field : fields) AppendField(field.key, Bounded(field.value), &line);
  return line;
}

void AppendJsonString(absl::string_view text, std::string* line) {
  line->push_back('"');
  while (!text.empty()) {
    const auto byte = static_cast<unsigned char>(text.front());
    size_t bytes = byte < 0x80 ? 1 : Utf8SequenceBytes(text);
    if (bytes == 0) {
      line->append("\\ufffd");
      bytes = 1;
    } else if (byte == '"' || byte == '\\') {
      line->append({'\\', text.front()});
    } else if (byte < 0x20 || byte == 0x7F) {
      absl::StrAppend(line, "\\u", absl::Hex(byte, absl::kZeroPad4));
    } else {
      line->append(text.data(), bytes);
    }
    text.remove_prefix(bytes);
  }
  line->push_back('"');
}

std::string JsonLine(absl::string_view time, absl::string_view level, absl::string_view message,
                     absl::Span<const LogField> fields) {
  std::string line = absl::StrCat("{\"ts\":\"", time, "\",\"level\":\"", level, "\",\"msg\":");
  AppendJsonString(Bounded(message), &line);
  for (const LogField& field : fields) {
    line.push_back(',');
    AppendJsonString(field.key, &line);
    line.push_back(':');
    // JSON has no word for what is not finite.
    if (field.is_number && std::isdigit(static_cast<unsigned char>(field.value.back())))
      line.append(field.value);
    else
      AppendJsonString(Bounded(field.value), &line);
  }
  line.push_back('}');
  return line;
}

std::string MakeLine(LogLevel level, absl::string_view message, absl::Span<const LogField> fields) {
  const std::string time =
      absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone());
  const auto make_line = CurrentLogFormat() == LogFormat::kJson ? JsonLine : LogfmtLine;
  std::string line = make_line(time, LogLevelName(level), message, fields);
  line.push_back('\n');
  return line;
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

bool ParseLogFormat(absl::string_view name, LogFormat* format) {
  for (int i = 0; i < 2; ++i) {
    if (name != kFormatNames[i]) continue;
    *format = static_cast<LogFormat>(i);
    return true;
  }
  return false;
}

absl::string_view LogFormatName(LogFormat format) { return kFormatNames[static_cast<int>(format)]; }

void SetLogFormat(LogFormat format) { format_now.store(format); }

LogFormat CurrentLogFormat() { return format_now.load(std::memory_order_relaxed); }

void Log(LogLevel level, absl::string_view message, absl::Span<const LogField> fields) {
  if (LogEnabled(level)) LogAlways(level, message, fields);
}

void LogAlways(LogLevel level, absl::string_view message, absl::Span<const LogField> fields) {
  WriteLine(STDERR_FILENO, MakeLine(level, message, fields));
}

void Say(int fd, LogLevel level, absl::string_view message, absl::Span<const LogField> fields) {
  WriteLine(fd, CurrentLogFormat() == LogFormat::kJson
                    ? MakeLine(level, message, fields)
                    : absl::StrCat("warpcalld: ", message, "\n"));
}

std::string LinesDroppedNotice(int64_t dropped) {
  return MakeLine(LogLevel::kWarning,
                  "lines of the log were dropped here: they could not be written",
                  {{"lines", dropped}});
}

}  // namespace warpcall
