#include "server/reload.h"

#include <utility>

#include "server/log.h"

namespace warpcall {

void Reloader::Add(File file, std::function<absl::StatusOr<std::string>()> read) {
  sources_.push_back({std::move(file), std::move(read), std::make_unique<std::atomic<int64_t>>(0)});
}

void Reloader::ReadAgain() const {
  if (sources_.empty())
    LogAlways(LogLevel::kInfo, "there is nothing to read again: no flag names a file that is");
  for (const Source& source : sources_) ReadAgain(source);
}

bool Reloader::ReadAgain(const std::string& file) const {
  bool all = true;
  for (const Source& source : sources_)
    if (source.file.file == file) all &= ReadAgain(source);
  return all;
}

std::vector<LabelledCount> Reloader::failures() const {
  std::vector<LabelledCount> counts;
  for (const Source& source : sources_)
    counts.push_back({source.file.flag, source.failures->load()});
  return counts;
}

bool Reloader::ReadAgain(const Source& source) {
  const absl::StatusOr<std::string> outcome = source.read();
  if (!outcome.ok()) source.failures->fetch_add(1);
  if (outcome.ok())
    LogAlways(LogLevel::kInfo, "read again", {{"file", source.file.file}, {"outcome", *outcome}});
  else
    LogAlways(LogLevel::kError, "could not be read again: what it said before stays",
              {{"file", source.file.file}, {"error", outcome.status().message()}});
  return outcome.ok();
}

}  // namespace warpcall
