#include "server/engine/tuning_cache.h"

#include <cmath>
#include <cstdio>
#include <optional>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/atomic_file.h"
#include "proto/common/status_macros.h"
#include "server/engine/tuning_text.h"
#include "server/log/log.h"
#include "server/system/small_file.h"

namespace warpcall {
namespace {

// Factor by which an implementation must become slower to be logged.
constexpr double kSlowerMax = 1.05;

constexpr char kFlag[] = "tuning_cache";

absl::Status Unusable(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("tuning_cache: the file \"", path, "\" can't be used: ", why));
}

std::string StampText(const TuningStamp& stamp) {
  std::string text =
      absl::StrCat("at ", stamp.started_unix_ns, " ns, server ", stamp.server_version);
  if (!stamp.driver.empty())
    absl::StrAppend(&text, ", driver ", stamp.driver, ", clock ", stamp.sm_clock_mhz_min, " to ",
                    stamp.sm_clock_mhz_max, " MHz, throttled: ",
                    stamp.throttle_reasons.empty() ? "no" : stamp.throttle_reasons);
  return text;
}

}  // namespace

absl::Status TuningCache::Check(const std::string& path) {
  if (absl::Status is = CheckRegularFile(kFlag, path); absl::IsInvalidArgument(is)) return is;
  const absl::Status made = AtomicFile::Create(path + ".").status();
  if (made.ok()) return made;
  return Unusable(path, absl::StrCat("no file can be made beside it: ", made.message()));
}

absl::StatusOr<std::unique_ptr<TuningCache>> TuningCache::Open(const Registry& registry,
                                                               TuningTable* table,
                                                               std::string path) {
  if (!path.empty()) RETURN_IF_ERROR(Check(path));
  std::unique_ptr<TuningCache> cache(new TuningCache(registry, table, std::move(path)));
  cache->TakeShipped();
  if (!cache->path_.empty()) cache->ReadFile();
  return cache;
}

void TuningCache::TakeShipped() {
  absl::StatusOr<TuningText> text = ParseTuning(registry_, ShippedTuning());
  if (!text.ok()) {
    ++read_errors_;
    Log(LogLevel::kError, "the shipped tuning table is not used",
        {{"error", text.status().message()}});
    return;
  }
  for (TunedClass& tuned : text->classes) {
    tuned.shipped = true;
    table_->Take(std::move(tuned));
  }
}

void TuningCache::ReadFile() {
  const absl::StatusOr<std::string> bytes = ReadSmallFile(kFlag, path_, size_t{kFileBytesMax});
  if (absl::IsNotFound(bytes.status())) return;
  absl::StatusOr<TuningText> text =
      bytes.ok() ? ParseTuning(registry_, *bytes) : absl::StatusOr<TuningText>(bytes.status());
  if (text.ok()) {
    Log(LogLevel::kInfo, "tuning cache read",
        {{"file", path_}, {"classes", text->classes.size()}, {"unknown", text->unknown.size()}});
    for (TunedClass& tuned : text->classes) table_->Take(std::move(tuned));
    unknown_ = std::move(text->unknown);
    return;
  }
  ++read_errors_;
  const std::string aside = absl::StrCat(path_, ".damaged");
  // People need the damaged file to find the cause, and the next one must not replace it.
  const bool moved =
      !absl::IsUnavailable(text.status()) && rename(path_.c_str(), aside.c_str()) == 0;
  may_be_replaced_ = moved;
  Log(LogLevel::kError, "the tuning cache is not used",
      {{"file", path_}, {"error", text.status().message()}, {"moved_to", moved ? aside : ""}});
}

void TuningCache::Learn(TunedClass measured) {
  absl::MutexLock lock(&writing_);
  const TunedClass now = measured;
  const std::shared_ptr<const TunedClass> before = table_->Take(std::move(measured));
  if (before != nullptr) LogSlower(*before, now);
  if (path_.empty()) return;
  if (const absl::Status written = WriteFile(); !written.ok()) {
    ++write_errors_;
    Log(LogLevel::kError, "the tuning cache can't be written",
        {{"file", path_}, {"error", written.message()}});
  }
}

absl::Status TuningCache::WriteFile() {
  if (!may_be_replaced_)
    return absl::FailedPreconditionError(
        "the existing file could be neither read nor moved aside, so it is not replaced");
  std::vector<std::shared_ptr<const TunedClass>> classes = table_->Classes();
  std::erase_if(classes, [](const auto& tuned) { return tuned->shipped; });
  ASSIGN_OR_RETURN(AtomicFile file, AtomicFile::Create(path_ + "."));
  RETURN_IF_ERROR(file.Write(FormatTuning(registry_, classes, unknown_)));
  RETURN_IF_ERROR(file.Publish());
  return file.Commit(path_);
}

void TuningCache::LogSlower(const TunedClass& before, const TunedClass& now) const {
  // Another problem of the class takes another time.
  if (!(before.problem == now.problem)) return;
  const Kernel& kernel = registry_.kernels()[static_cast<size_t>(now.kernel)];
  for (const RightRow& row : now.right) {
    const auto was =
        absl::c_find_if(before.right, [&](const RightRow& other) { return other.row == row.row; });
    if (was == before.right.end() || row.unstable || was->unstable ||
        row.median_ns <= kSlowerMax * was->median_ns || row.median_low_ns <= was->median_high_ns)
      continue;
    Log(LogLevel::kWarning, "a row is slower than it was",
        {{"kernel", kernel.op->name},
         {"implementation",
          PinnedName(registry_.rows()[static_cast<size_t>(row.row)].implementation)},
         {"problem", ToText(*kernel.op, now.problem)},
         {"device", now.device_model},
         {"percent", std::lround(100 * (row.median_ns / was->median_ns - 1))},
         {"was_ns", was->median_ns},
         {"now_ns", row.median_ns},
         {"was", StampText(before.stamp)},
         {"now", StampText(now.stamp)}});
  }
}

}  // namespace warpcall
