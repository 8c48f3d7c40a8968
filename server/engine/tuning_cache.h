// Keeps tuning results from one start of the server to the next: the table shipped with the
// program, and a file of measurements from this machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "kernels/registry.h"
#include "server/engine/tuning_table.h"

namespace warpcall {

// In FormatTuning's format; made by tests/gpu/run.sh's step "tune".
absl::string_view ShippedTuning();

// Thread-safe.
class TuningCache {
 public:
  // A larger file is no tuning table.
  static constexpr int64_t kFileBytesMax = int64_t{64} << 20;

  // Fills `table` with ShippedTuning and with the file's classes, which override it. `registry` and
  // `table` outlive the cache. Empty path: nothing is kept. A missing file is made later. A damaged
  // file, or one of another version, is not used: it is logged, counted and moved aside. One that
  // can be neither read nor moved aside stays as it is, and nothing is kept. INVALID_ARGUMENT when
  // the path can hold no such file.
  static absl::StatusOr<std::unique_ptr<TuningCache>> Open(const Registry& registry,
                                                           TuningTable* table, std::string path);

  // Returns the error of Open for a path that is not empty; keeps and reads nothing.
  static absl::Status Check(const std::string& path);

  // Stores `measured` in the table and rewrites the file with it. Logs each implementation that
  // became slower for the same problem by more than 5 %, beyond both confidence intervals, with
  // both stamps. A file that can't be written is logged and counted; the table keeps the
  // measurement.
  void Learn(TunedClass measured);

  struct Errors {
    int64_t read = 0;
    int64_t write = 0;
  };
  Errors errors() const { return {read_errors_.load(), write_errors_.load()}; }

 private:
  TuningCache(const Registry& registry, TuningTable* table, std::string path)
      : registry_(registry), table_(table), path_(std::move(path)) {}

  void TakeShipped();
  void ReadFile();
  absl::Status WriteFile() ABSL_EXCLUSIVE_LOCKS_REQUIRED(writing_);
  void LogSlower(const TunedClass& before, const TunedClass& now) const;

  const Registry& registry_;
  TuningTable* const table_;
  const std::string path_;
  std::vector<std::string> unknown_;  // TuningText::unknown of the file
  bool may_be_replaced_ = true;       // the file: see Open
  std::atomic<int64_t> read_errors_{0};
  std::atomic<int64_t> write_errors_{0};
  absl::Mutex writing_;
};

}  // namespace warpcall
