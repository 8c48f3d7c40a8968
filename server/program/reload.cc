#include "server/program/reload.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/steady_wait.h"
#include "server/log/log.h"

namespace warpcall {
namespace {

// Returns the file that `error` names, as those of ReadSmallFile and the files' readers do: several
// files may be read together.
const std::string& FileOf(const Reloader::File& file, absl::string_view error) {
  for (const std::string& watched : file.watched)
    if (!watched.empty() && absl::StrContains(error, absl::StrCat(": ", watched, ": ")))
      return watched;
  return file.file;
}

}  // namespace

void Reloader::Add(File file, std::function<absl::StatusOr<std::string>()> read) {
  WARPCALL_DCHECK(sources_.empty() || sources_.back()->watch == nullptr, file.flag);
  sources_.push_back(std::make_unique<Source>());
  sources_.back()->file = std::move(file);
  sources_.back()->read = std::move(read);
}

void Reloader::Start() {
  for (const std::unique_ptr<Source>& source : sources_)
    source->watch = std::make_unique<FileWatch>(
        source->file.watched, source->file.seen, [source = source.get()] { return Read(source); },
        source->file.watched.empty() ? absl::InfiniteDuration() : absl::Seconds(1));
}

void Reloader::ReadAgain(std::function<void()> done) {
  if (sources_.empty())
    LogAlways(LogLevel::kInfo, "there is nothing to read again: no flag names a file that is");
  // Gone with the last of its copies.
  const std::shared_ptr<void> unread(nullptr, [done = std::move(done)](void*) { done(); });
  for (const std::unique_ptr<Source>& source : sources_) {
    WARPCALL_CHECK(source->watch != nullptr, source->file.flag);
    source->watch->ReadNow(unread);
  }
}

void Reloader::ReportHanging(absl::Duration longer_than) {
  for (const std::unique_ptr<Source>& source : sources_) {
    const absl::Duration busy = source->watch->busy_for();
    const bool hangs = busy >= longer_than;
    if (hangs && !source->reported) {
      source->failures.fetch_add(1);
      LogAlways(LogLevel::kError, "a file system does not answer: what the file said before stays",
                {{"file", source->file.file}, {"seconds", absl::ToInt64Seconds(busy)}});
    }
    source->reported = hangs;
  }
}

bool Reloader::End(absl::Duration timeout) {
  const SteadyTime give_up = SteadyAfter(timeout);
  bool all = true;
  for (const std::unique_ptr<Source>& source : sources_)
    if (source->watch != nullptr) all &= source->watch->End(UntilSteady(give_up));
  return all;
}

std::vector<LabelledCount> Reloader::failures() const {
  std::vector<LabelledCount> counts;
  for (const std::unique_ptr<Source>& source : sources_)
    counts.push_back({source->file.flag, source->failures.load()});
  return counts;
}

bool Reloader::Read(Source* source) {
  const absl::StatusOr<std::string> outcome = source->read();
  if (!outcome.ok()) source->failures.fetch_add(1);
  if (outcome.ok())
    LogAlways(LogLevel::kInfo, "read again", {{"file", source->file.file}, {"outcome", *outcome}});
  else
    LogAlways(LogLevel::kError, "reload failed: the previous version stays in force",
              {{"file", FileOf(source->file, outcome.status().message())},
               {"error", outcome.status().message()}});
  return outcome.ok();
}

}  // namespace warpcall
