#include "client/cli/common/progress.h"

#include <cstdio>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace warpcall::cli {

Progress::Progress(std::string what) : what_(std::move(what)), thread_([this] { Report(); }) {}

Progress::~Progress() {
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }
  thread_.join();
}

void Progress::Report() {
  const absl::Time start = absl::Now();
  absl::MutexLock lock(&mutex_);
  for (int64_t seconds = 1;; seconds *= 2) {
    const absl::Time next = start + absl::Seconds(seconds);
    if (mutex_.AwaitWithDeadline(absl::Condition(&done_), next)) return;
    std::fprintf(stderr, "warpcall: %s: %lld s so far\n", what_.c_str(),
                 static_cast<long long>(seconds));
  }
}

}  // namespace warpcall::cli
