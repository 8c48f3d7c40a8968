// What tuning has shown, from one start of the server to the next: the table that came with the
// program, and a file of what was measured here.
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

// As FormatTuning writes it: made by tests/gpu/run.sh's step "tune".
absl::string_view ShippedTuning();

// Thread-safe.
class TuningCache {
 public:
  // What is larger is no tuning table.
  static constexpr int64_t kFileBytesMax = int64_t{64} << 20;

  // Fills `table` with ShippedTuning and with the file's classes, which go before; both outlive
  // this. An empty path: nothing is kept. A file that is not there is made later. One that is
  // damaged, or of another version, is not used: it is logged, counted, and moved aside. One that
  // can be neither read nor moved aside stays as it is, and nothing is kept. INVALID_ARGUMENT when
  // there can be no such file.
  static absl::StatusOr<std::unique_ptr<TuningCache>> Open(const Registry& registry,
                                                           TuningTable* table, std::string path);

  // Returns the error of Open for a path that is not empty; keeps and reads nothing.
  static absl::Status Check(const std::string& path);

  // Puts it into the table and replaces the file by one with it. Logs each row that is slower than
  // it was for the same problem by more than 5 %, beyond the confidence intervals of both, with
  // both stamps. A file that can't be written is logged and counted; what was measured holds
  // nevertheless.
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
  std::vector<std::string> unknown_;  // TuningText's, of the file
  bool may_be_replaced_ = true;       // the file
  std::atomic<int64_t> read_errors_{0};
  std::atomic<int64_t> write_errors_{0};
  absl::Mutex writing_;
};

}  // namespace warpcall
