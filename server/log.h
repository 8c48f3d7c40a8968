// Structured log lines on stderr, one per event: ts=… level=… msg="…" key=value …
#pragma once

#include <initializer_list>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace warpcall {

enum class LogLevel : int { kDebug, kInfo, kWarning, kError };

// Accepts the names in LogLevelNames().
bool ParseLogLevel(absl::string_view name, LogLevel* level);
absl::string_view LogLevelNames();

// Lines below `level` are dropped. Thread-safe; may change while running.
void SetLogLevel(LogLevel level);
bool LogEnabled(LogLevel level);

struct LogField {
  LogField(absl::string_view field_key, const absl::AlphaNum& field_value)
      : key(field_key), value(field_value.Piece()) {}

  absl::string_view key;
  std::string value;
};

// Values are quoted and escaped where needed: a client's text cannot forge a line.
void Log(LogLevel level, absl::string_view message, std::initializer_list<LogField> fields = {});

}  // namespace warpcall
