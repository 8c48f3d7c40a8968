// The policy file, as of the last successful read.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/access/policy.h"

namespace warpcall {

// Thread-safe.
class Policies {
 public:
  // `methods` are the methods that exist. Errors name the file.
  static absl::StatusOr<std::unique_ptr<Policies>> Open(const std::string& file,
                                                        Policy::Names methods);

  std::shared_ptr<const PolicyTable> table() const;

  // See PolicyTable.
  std::shared_ptr<const Policy> Of(absl::string_view name) const;

  // See PolicyTable.
  std::vector<std::string> labels() const;

  // Reads the file now and returns a summary in words. After an error the previous policies stay.
  absl::StatusOr<std::string> ReadAgain();

 private:
  Policies(std::string file, Policy::Names methods)
      : file_(std::move(file)), methods_(std::move(methods)) {}

  const std::string file_;
  const Policy::Names methods_;
  absl::Mutex reading_;  // orders reads, so that they set the table in turn
  mutable absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(reading_);
  std::shared_ptr<const PolicyTable> table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
