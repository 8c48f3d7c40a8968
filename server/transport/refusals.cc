#include "server/transport/refusals.h"

#include <utility>

#include "kernels/cpu/thread_pool.h"

namespace warpcall {
namespace {

// As the threads that compute.
constexpr int kNice = 10;

}  // namespace

Refusals::Refusals() : thread_([this] { Loop(); }) {}

Refusals::~Refusals() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    added_.Signal();
  }
  thread_.join();
}

void Refusals::Add(absl::AnyInvocable<void()> answer) {
  absl::MutexLock lock(&mutex_);
  answers_.push_back(std::move(answer));
  if (answers_.size() == 1) added_.Signal();
}

void Refusals::Loop() {
  cpu::LowerPriority(kNice);
  while (true) {
    std::vector<absl::AnyInvocable<void()>> answers;
    {
      absl::MutexLock lock(&mutex_);
      while (answers_.empty() && !stopping_) added_.Wait(&mutex_);
      if (answers_.empty()) return;
      answers.swap(answers_);
    }
    for (absl::AnyInvocable<void()>& answer : answers) answer();
  }
}

}  // namespace warpcall
