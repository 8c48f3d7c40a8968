#include "server/transport/background_thread.h"

#include <utility>

#include "kernels/cpu/thread_pool.h"

namespace warpcall {
namespace {

// As the threads that compute.
constexpr int kNice = 10;

}  // namespace

BackgroundThread::BackgroundThread() : thread_([this] { Loop(); }) {}

BackgroundThread::~BackgroundThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    added_.Signal();
  }
  thread_.join();
}

void BackgroundThread::Add(absl::AnyInvocable<void()> work) {
  absl::MutexLock lock(&mutex_);
  work_.push_back(std::move(work));
  if (work_.size() == 1) added_.Signal();
}

void BackgroundThread::Loop() {
  cpu::LowerPriority(kNice);
  while (true) {
    std::vector<absl::AnyInvocable<void()>> work;
    {
      absl::MutexLock lock(&mutex_);
      while (work_.empty() && !stopping_) added_.Wait(&mutex_);
      if (work_.empty()) return;
      work.swap(work_);
    }
    for (absl::AnyInvocable<void()>& item : work) item();
  }
}

}  // namespace warpcall
