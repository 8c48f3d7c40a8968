// Structured log lines on stderr, one per event: ts=… level=… msg="…" key=value …, or the same as
// JSON.
#pragma once

#include <string>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError };

// Accepts the names in LogLevelNames().
bool ParseLogLevel(absl::string_view name, LogLevel* level);
absl::string_view LogLevelNames();
absl::string_view LogLevelName(LogLevel level);

// Lines below `level` are dropped. Thread-safe; may change while running.
void SetLogLevel(LogLevel level);
LogLevel CurrentLogLevel();
bool LogEnabled(LogLevel level);

// kJson: one object per line, with logfmt's keys. Numbers are numbers, other values strings, in
// which U+FFFD replaces bytes that are not UTF-8.
enum class LogFormat : int { kLogfmt, kJson };

// Accepts "logfmt" and "json".
bool ParseLogFormat(absl::string_view name, LogFormat* format);
absl::string_view LogFormatName(LogFormat format);
void SetLogFormat(LogFormat format);
LogFormat CurrentLogFormat();

struct LogField {
  LogField(absl::string_view field_key, const absl::AlphaNum& field_value)
      : key(field_key), value(field_value.Piece()) {}
  template <typename Number, std::enable_if_t<std::is_arithmetic_v<Number>, int> = 0>
  LogField(absl::string_view field_key, Number field_value)
      : LogField(field_key, absl::AlphaNum(field_value)) {
    is_number = true;
  }

  absl::string_view key;
  std::string value;
  bool is_number = false;
};

// Values are quoted and escaped where needed: a client's text cannot forge a line.
void Log(LogLevel level, absl::string_view message, absl::Span<const LogField> fields = {});
// As Log, whatever the level is set to.
void LogAlways(LogLevel level, absl::string_view message, absl::Span<const LogField> fields = {});

}  // namespace warpcall
