// Preloaded into a server, counts the bytes that any of its code, gRPC's and protobuf's included,
// copies by the C library's functions, and writes the sum to the file $WARPCALL_COPY_METER.PID when
// the process ends. Processes that it starts are not metered.
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

// Smaller copies are headers, names and libraries' handling of them.
constexpr size_t kCountedBytesMin = 1024;

using Copy = void* (*)(void* to, const void* from, size_t bytes);

std::atomic<Copy> library_copy{nullptr};
std::atomic<bool> asked{false};
std::atomic<int64_t> copied_bytes{0};

// While the library's function is looked up, which may copy, too.
void* CopyByHand(void* to, const void* from, size_t bytes) {
  auto* const out = static_cast<volatile char*>(to);
  const auto* const in = static_cast<const volatile char*>(from);
  if (out <= in) {
    for (size_t i = 0; i < bytes; ++i) out[i] = in[i];
  } else {
    for (size_t i = bytes; i-- > 0;) out[i] = in[i];
  }
  return to;
}

void* CountedCopy(void* to, const void* from, size_t bytes) {
  if (bytes >= kCountedBytesMin)
    copied_bytes.fetch_add(static_cast<int64_t>(bytes), std::memory_order_relaxed);
  Copy copy = library_copy.load(std::memory_order_acquire);
  if (copy == nullptr && !asked.exchange(true)) {
    copy = reinterpret_cast<Copy>(dlsym(RTLD_NEXT, "memmove"));
    library_copy.store(copy, std::memory_order_release);
  }
  return (copy == nullptr ? CopyByHand : copy)(to, from, bytes);
}

char path[512];

__attribute__((constructor)) void Begin() {
  const char* const given = std::getenv("WARPCALL_COPY_METER");
  if (given != nullptr)
    std::snprintf(path, sizeof(path), "%s.%d", given, static_cast<int>(getpid()));
  unsetenv("LD_PRELOAD");
  unsetenv("WARPCALL_COPY_METER");
}

__attribute__((destructor)) void Write() {
  if (path[0] == '\0') return;
  char text[32];
  const int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const int length =
      std::snprintf(text, sizeof(text), "%lld\n", static_cast<long long>(copied_bytes.load()));
  [[maybe_unused]] const ssize_t written = write(file, text, static_cast<size_t>(length));
  close(file);
}

}  // namespace

extern "C" {
// Callers that were built with _FORTIFY_SOURCE use those with "chk".
void* memcpy(void* to, const void* from, size_t bytes) { return CountedCopy(to, from, bytes); }
void* memmove(void* to, const void* from, size_t bytes) { return CountedCopy(to, from, bytes); }
void* mempcpy(void* to, const void* from, size_t bytes) {
  return static_cast<char*>(CountedCopy(to, from, bytes)) + bytes;
}
void* __memcpy_chk(void* to, const void* from, size_t bytes, size_t) {
  return CountedCopy(to, from, bytes);
}
void* __memmove_chk(void* to, const void* from, size_t bytes, size_t) {
  return CountedCopy(to, from, bytes);
}
void* __mempcpy_chk(void* to, const void* from, size_t bytes, size_t) {
  return static_cast<char*>(CountedCopy(to, from, bytes)) + bytes;
}
}
