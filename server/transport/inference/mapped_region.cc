#include "server/transport/inference/mapped_region.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace warpcall::oip {
namespace {

constexpr size_t kKeyBytesMax = 255;  // NAME_MAX

// A mapping, as the signal handler sees it; the handler may take no lock.
struct Watch {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<bool> lost{false};
};
Watch g_watches[MappedRegion::kRegionsMax];
uintptr_t g_page_bytes;
struct sigaction g_before;  // the action for SIGBUS before ours

// Replaces the mapping by zeros from the page of `address` to its end, since the pages after a lost
// page are lost as well. Returns false if no region contains `address`.
bool Replace(uintptr_t address) {
  for (Watch& watch : g_watches) {
    const uintptr_t end = watch.end.load();
    if (address < watch.begin.load() || address >= end) continue;
    watch.lost.store(true);
    const uintptr_t page = address & ~(g_page_bytes - 1);
    return mmap(reinterpret_cast<void*>(page), end - page, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  return false;
}

void OnBusError(int number, siginfo_t* info, void* context) {
  const int saved_errno = errno;
  if (Replace(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = saved_errno;
    return;
  }
  if ((g_before.sa_flags & SA_SIGINFO) != 0) return g_before.sa_sigaction(number, info, context);
  // The instruction is tried again, and then does what it would have done.
  sigaction(SIGBUS, &g_before, nullptr);
}

void InstallHandler() {
  static const bool installed = [] {
    g_page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    struct sigaction action = {};
    action.sa_sigaction = OnBusError;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return sigaction(SIGBUS, &action, &g_before) == 0;
  }();
  (void)installed;
}

absl::Status CheckKey(absl::string_view key) {
  const bool fits = key.size() > 1 && key.size() <= kKeyBytesMax && key[0] == '/' &&
                    key.find('/', 1) == absl::string_view::npos &&
                    key.find('\0') == absl::string_view::npos && key != "/." && key != "/..";
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shared memory key \"", key.substr(0, kKeyBytesMax),
                   "\" must be \"/\" and 1 to ", kKeyBytesMax - 1, " characters other than \"/\""));
}

// The object's size, if the range lies within it.
absl::Status CheckRange(int file, uint64_t offset, uint64_t bytes) {
  struct stat facts;
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode))
    return absl::InvalidArgumentError("the shared memory key names no shared memory");
  const auto size = static_cast<uint64_t>(facts.st_size);
  if (bytes > 0 && offset <= size && bytes <= size - offset) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("shared memory of ", bytes, " bytes at offset ",
                                                 offset, " does not lie in its object, which has ",
                                                 size, " bytes"));
}

// kRegionsMax: there is none.
size_t TakeWatch() {
  for (size_t i = 0; i < MappedRegion::kRegionsMax; ++i)
    if (!g_watches[i].taken.exchange(true)) return i;
  return MappedRegion::kRegionsMax;
}

}  // namespace

absl::StatusOr<std::shared_ptr<MappedRegion>> MappedRegion::Map(const std::string& key,
                                                                uint64_t offset, uint64_t bytes) {
  if (absl::Status status = CheckKey(key); !status.ok()) return status;
  InstallHandler();
  const int file = shm_open(key.c_str(), O_RDWR | O_CLOEXEC, 0);
  // Gives one error for missing objects and for those without permission.
  if (file < 0)
    return absl::InvalidArgumentError(
        absl::StrCat("shared memory \"", key, "\" is not there, or not for this server to use"));
  absl::Status status = CheckRange(file, offset, bytes);
  std::shared_ptr<MappedRegion> region(new MappedRegion());
  if (status.ok() && (region->watch_ = TakeWatch()) == kRegionsMax)
    status = absl::ResourceExhaustedError(
        absl::StrCat("there are ", kRegionsMax, " regions of shared memory, which is the limit"));
  if (status.ok()) {
    const uint64_t skipped = offset & (g_page_bytes - 1);
    region->mapped_bytes_ = skipped + bytes;
    void* const mapped = mmap(nullptr, region->mapped_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED,
                              file, static_cast<off_t>(offset - skipped));
    if (mapped == MAP_FAILED) {
      status = absl::ResourceExhaustedError(
          absl::StrCat("shared memory of ", bytes, " bytes cannot be mapped"));
    } else {
      region->mapped_ = static_cast<char*>(mapped);
      region->data_ = region->mapped_ + skipped;
      region->bytes_ = bytes;
      Watch& watch = g_watches[region->watch_];
      const auto begin = reinterpret_cast<uintptr_t>(mapped);
      watch.lost.store(false);
      watch.end.store((begin + region->mapped_bytes_ + g_page_bytes - 1) & ~(g_page_bytes - 1));
      watch.begin.store(begin);
    }
  }
  close(file);
  if (!status.ok()) return status;
  return region;
}

MappedRegion::~MappedRegion() {
  if (watch_ == kRegionsMax) return;
  Watch& watch = g_watches[watch_];
  watch.begin.store(std::numeric_limits<uintptr_t>::max());
  watch.end.store(0);
  if (mapped_ != nullptr) munmap(mapped_, mapped_bytes_);
  watch.taken.store(false);
}

bool MappedRegion::lost() const { return g_watches[watch_].lost.load(); }

}  // namespace warpcall::oip
