#include "client/cli/common/progress.h"

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/common/output.h"

namespace warpcall::cli {

namespace {

absl::Mutex last_mutex(absl::kConstInit);
Progress* last ABSL_GUARDED_BY(last_mutex) = nullptr;

Progress* ExchangeLast(Progress* progress) {
  absl::MutexLock lock(&last_mutex);
  return std::exchange(last, progress);
}

}  // namespace

Progress::Progress(std::string what)
    : what_(std::move(what)), before_(ExchangeLast(this)), thread_([this] { Report(); }) {}

Progress::~Progress() {
  ExchangeLast(before_);
  {
    absl::MutexLock lock(&mutex_);
    done_ = true;
  }
  thread_.join();
  EndStatus();
}

void Progress::Show(std::string news) {
  absl::MutexLock lock(&mutex_);
  news_.push_back(std::move(news));
  if (is_shown_) PrintNews();
}

void Progress::ShowInLast(std::string news) {
  absl::MutexLock lock(&last_mutex);
  if (last != nullptr) last->Show(std::move(news));
}

void Progress::Report() {
  absl::MutexLock lock(&mutex_);
  const bool is_rewritten = StatusIsRewritten();
  for (int64_t seconds = 1;; seconds += is_rewritten ? 1 : seconds) {
    const absl::Time next = start_ + absl::Seconds(seconds);
    if (mutex_.AwaitWithDeadline(absl::Condition(&done_), next)) return;
    is_shown_ = true;
    PrintNews();
    Print(absl::StrCat(is_rewritten ? newest_ : "", seconds, " s so far"));
  }
}

void Progress::PrintNews() {
  const int64_t seconds = absl::ToInt64Seconds(absl::Now() - start_);
  for (const std::string& news : news_) {
    newest_ = absl::StrCat(news, ", ");
    Print(absl::StrCat(newest_, seconds, " s so far"));
  }
  news_.clear();
}

void Progress::Print(const std::string& text) const {
  PrintStatus(absl::StrCat(what_, ": ", text));
}

}  // namespace warpcall::cli
