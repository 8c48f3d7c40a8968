// Has a data race on purpose: its ctest test passes only when ThreadSanitizer reports the race,
// which shows that absl_mutex.cc does not hide races. The lock guards one write of two.
#include <thread>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

int main() {
  absl::Mutex mutex;
  absl::Notification started;
  int value = 0;
  std::thread other([&] {
    started.Notify();
    absl::MutexLock lock(&mutex);
    ++value;
  });
  started.WaitForNotification();
  ++value;
  other.join();
  return value == 2 ? 0 : 1;
}
