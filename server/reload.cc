#include "server/reload.h"

#include <utility>

#include "server/log.h"

namespace warpcall {

void Reloader::Add(std::string file, std::function<absl::StatusOr<std::string>()> read) {
  sources_.push_back({std::move(file), std::move(read)});
}

void Reloader::ReadAgain() const {
  if (sources_.empty())
    LogAlways(LogLevel::kInfo, "there is nothing to read again: no flag names a file that is");
  for (const Source& source : sources_) ReadAgain(source);
}

void Reloader::ReadAgain(const std::string& file) const {
  for (const Source& source : sources_)
    if (source.file == file) ReadAgain(source);
}

void Reloader::ReadAgain(const Source& source) {
  const absl::StatusOr<std::string> outcome = source.read();
  if (outcome.ok())
    LogAlways(LogLevel::kInfo, "read again", {{"file", source.file}, {"outcome", *outcome}});
  else
    LogAlways(LogLevel::kError, "could not be read again: what it said before stays",
              {{"file", source.file}, {"error", outcome.status().message()}});
}

}  // namespace warpcall
