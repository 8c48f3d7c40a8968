// Clocks that can be stepped for one process: LD_PRELOAD of this library, and
// WARPCALL_TEST_CLOCK=FILE. FILE's first 8 bytes are an int64, the nanoseconds by which the process
// sees CLOCK_REALTIME ahead of the machine's; a write to them steps its clock at that moment.
// CLOCK_MONOTONIC and CLOCK_BOOTTIME stay, as they do when an administrator sets the time.
//
// The next 8 bytes, if there are any, step CLOCK_MONOTONIC for its readers: time passes in a
// moment. They do not shorten waits until a moment of that clock.
//
// A wait until a moment of the wall clock ends by the stepped clock, as with Linux's own timers:
// the wait consists of slices, and reads the clock after each of them.
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int64_t kSecondNs = 1000000000;
constexpr int64_t kSliceNs = kSecondNs / 20;

template <typename Function>
Function* Next(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

const volatile int64_t* OpenSteps() {
  static const int64_t none[2] = {};
  const char* const path = getenv("WARPCALL_TEST_CLOCK");
  if (path == nullptr) return none;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  void* const page =
      file < 0 ? MAP_FAILED : mmap(nullptr, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
  if (page == MAP_FAILED) {
    fprintf(stderr, "WARPCALL_TEST_CLOCK: %s can't be mapped: errno %d\n", path, errno);
    abort();
  }
  close(file);
  return static_cast<const volatile int64_t*>(page);
}

// Step of the wall clock (0), or of the clock that nobody sets (1).
int64_t StepNs(int clock = 0) {
  static const volatile int64_t* const steps = OpenSteps();
  return steps[clock];
}

timespec FromNs(int64_t ns) { return {ns / kSecondNs, ns % kSecondNs}; }

int64_t MachineNs() {
  static auto* const next = Next<decltype(clock_gettime)>("clock_gettime");
  timespec now = {};
  next(CLOCK_REALTIME, &now);
  return now.tv_sec * kSecondNs + now.tv_nsec;
}

// Until when the machine's clock is waited for, and whether the stepped one is at `end` by then.
struct Slice {
  explicit Slice(const timespec& end) {
    const int64_t now_ns = MachineNs();
    const int64_t left_ns = end.tv_sec * kSecondNs + end.tv_nsec - (now_ns + StepNs());
    is_last = left_ns <= kSliceNs;
    until = FromNs(now_ns + std::clamp<int64_t>(left_ns, 0, kSliceNs));
  }
  bool is_last;
  timespec until;
};

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  static auto* const next = Next<decltype(clock_gettime)>("clock_gettime");
  const int result = next(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
    *time = FromNs(time->tv_sec * kSecondNs + time->tv_nsec + StepNs());
  if (result == 0 && clock == CLOCK_MONOTONIC)
    *time = FromNs(time->tv_sec * kSecondNs + time->tv_nsec + StepNs(1));
  return result;
}

int gettimeofday(timeval* time, void*) noexcept {
  const timespec now = FromNs(MachineNs() + StepNs());
  *time = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

time_t time(time_t* result) noexcept {
  const time_t now = (MachineNs() + StepNs()) / kSecondNs;
  if (result != nullptr) *result = now;
  return now;
}

// Abseil's waits.
long syscall(long number, ...) noexcept {
  static auto* const next = Next<long(long, ...)>("syscall");
  va_list arguments;
  va_start(arguments, number);
  long a[6];
  for (long& argument : a) argument = va_arg(arguments, long);
  va_end(arguments);
  const bool until_wall_time = number == SYS_futex && (a[1] & FUTEX_CLOCK_REALTIME) != 0 &&
                               (a[1] & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET && a[3] != 0;
  if (!until_wall_time) return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
  // The kernel looks at the futex's value each time, so no wake-up is missed between two slices.
  while (true) {
    const Slice slice(*reinterpret_cast<const timespec*>(a[3]));
    const long result = next(number, a[0], a[1], a[2], &slice.until, a[4], a[5]);
    if (result != -1 || errno != ETIMEDOUT || slice.is_last) return result;
  }
}

// Slices end without waking up the caller, who would look at a clock of its own and wait on.
// std::condition_variable_any notifies under its mutex, so between two slices none is missed.
int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* end) {
  static auto* const next = Next<decltype(pthread_cond_timedwait)>("pthread_cond_timedwait");
  while (true) {
    const Slice slice(*end);
    const int result = next(condition, mutex, &slice.until);
    if (result != ETIMEDOUT || slice.is_last) return result;
  }
}

}  // extern "C"
