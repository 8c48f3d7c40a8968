// Structured log lines on stderr, one per event: ts=… level=… msg="…" key=value …
#pragma once

#include <string>

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

struct LogField {
  LogField(absl::string_view field_key, const absl::AlphaNum& field_value)
      : key(field_key), value(field_value.Piece()) {}

  absl::string_view key;
  std::string value;
};

// Values are quoted and escaped where needed: a client's text cannot forge a line.
void Log(LogLevel level, absl::string_view message, absl::Span<const LogField> fields = {});
// As Log, whatever the level is set to.
void LogAlways(LogLevel level, absl::string_view message, absl::Span<const LogField> fields = {});

}  // namespace warpcall
