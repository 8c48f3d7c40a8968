// Who may call.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/access/tokens.h"

namespace warpcall {

// The callers that a file of tokens knows, as it was last read. Thread-safe.
class Callers {
 public:
  // Errors name the file.
  static absl::StatusOr<std::unique_ptr<Callers>> Open(const std::string& token_file);

  // UNAUTHENTICATED where `authorization` is no "Bearer TOKEN" of a token that counts.
  absl::StatusOr<std::string> PrincipalOf(absl::string_view authorization) const;

  // Whether there are tokens that can be guessed by trying.
  bool AnyWeak() const;

  // Reads the file now, and says in words what came of it; on an error what counted before counts.
  absl::StatusOr<std::string> ReadAgain();

 private:
  explicit Callers(std::string file) : file_(std::move(file)) {}
  absl::StatusOr<std::shared_ptr<const TokenTable>> Read() const;

  const std::string file_;
  absl::Mutex reading_;  // who reads first sets first
  mutable absl::Mutex mutex_ ABSL_ACQUIRED_AFTER(reading_);
  std::shared_ptr<const TokenTable> table_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace warpcall
