// Authenticates callers by their tokens.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/access/tokens.h"

namespace warpcall {

// The callers in a token file, as of the last successful read. Thread-safe.
class Callers {
 public:
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<Callers>> Open(const std::string& token_file);

  // UNAUTHENTICATED unless `authorization` is "Bearer TOKEN" with a token of the file.
  absl::StatusOr<std::string> PrincipalOf(absl::string_view authorization) const;

  // Returns the names that tokens have.
  std::set<std::string> names() const;

  // Returns true if some token is short enough to be guessed by trying.
  bool AnyWeak() const;

  // Reads the file now and returns a summary in words. After an error the previous tokens stay.
  absl::StatusOr<std::string> ReadAgain();

 private:
  explicit Callers(std::string file) : file_(std::move(file)) {}
  absl::StatusOr<std::shared_ptr<const TokenTable>> Read() const;

  const std::string file_;
  absl::Mutex reading_;  // orders reads, so that they set the table in turn
  mutable absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(reading_);
  std::shared_ptr<const TokenTable> table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
