#include "server/process/confinement.h"

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "proto/common/descriptor.h"
#include "proto/common/status_macros.h"

namespace warpcall::process {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
const bool kLimitsMemory = false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
const bool kLimitsMemory = false;
#else
const bool kLimitsMemory = true;
#endif
#else
const bool kLimitsMemory = true;
#endif

namespace {

absl::Status Missing(absl::string_view what) {
  return absl::UnimplementedError(absl::StrCat(what, ": ", strerror(errno)));
}

absl::Status CheckOneThread() {
  std::error_code error;
  const std::filesystem::directory_iterator tasks("/proc/self/task", error);
  if (error) return absl::InternalError(absl::StrCat("/proc/self/task: ", error.message()));
  const auto threads = std::distance(begin(tasks), end(tasks));
  if (threads == 1) return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("a process of ", threads, " threads can't be confined; the limit is 1"));
}

// ---- Limits

absl::Status Limit(int resource, int64_t limit, int64_t hard_limit) {
  const rlimit limits = {static_cast<rlim_t>(limit), static_cast<rlim_t>(hard_limit)};
  if (setrlimit(static_cast<__rlimit_resource>(resource), &limits) == 0) return absl::OkStatus();
  return Missing(absl::StrCat("limiting resource ", resource, " to ", limit));
}

// CPU time for whoever catches SIGXCPU. A busy host may account for seconds at once.
constexpr int64_t kLastSeconds = 5;

absl::Status SetLimits(const Confinement& confinement) {
  RETURN_IF_ERROR(Limit(RLIMIT_CORE, 0, 0));
  if (confinement.silent) RETURN_IF_ERROR(Limit(RLIMIT_FSIZE, 0, 0));
  if (confinement.cpu_seconds > 0)
    RETURN_IF_ERROR(
        Limit(RLIMIT_CPU, confinement.cpu_seconds, confinement.cpu_seconds + kLastSeconds));
  if (confinement.address_space_bytes > 0 && kLimitsMemory)
    RETURN_IF_ERROR(
        Limit(RLIMIT_AS, confinement.address_space_bytes, confinement.address_space_bytes));
  return absl::OkStatus();
}

absl::Status Silence() {
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
    std::memset(*variable, 0, std::strlen(*variable));
  clearenv();
  const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (null.get() < 0 || dup2(null.get(), standard) < 0)
      return absl::InternalError(absl::StrCat("/dev/null: ", strerror(errno)));
  return absl::OkStatus();
}

// ---- Landlock: files, and from newer kernels on TCP, abstract sockets and signals

// landlock_ruleset_attr as of Linux 6.12. Older kernels accept it while the rights that they don't
// know are 0.
struct Rights {
  uint64_t files;
  uint64_t network;
  uint64_t scopes;
};

// Returns the rights that version `abi` can take away.
Rights RightsOf(int abi) {
  Rights rights = {LANDLOCK_ACCESS_FS_MAKE_SYM * 2 - 1, 0, 0};  // all of version 1
  if (abi >= 2) rights.files |= uint64_t{1} << 13;              // rename to other folders
  if (abi >= 3) rights.files |= uint64_t{1} << 14;              // truncate
  if (abi >= 4) rights.network = 3;                             // bind and connect TCP
  if (abi >= 5) rights.files |= uint64_t{1} << 15;              // ioctl of devices
  if (abi >= 6) rights.scopes = 3;                              // abstract sockets, signals
  return rights;
}

absl::Status AllowReading(int rules, const std::string& folder) {
  const Descriptor opened(open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  landlock_path_beneath_attr rule = {};
  rule.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
  rule.parent_fd = opened.get();
  if (opened.get() >= 0 &&
      syscall(SYS_landlock_add_rule, rules, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) == 0)
    return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat("the folder ", folder, ": ", strerror(errno)));
}

absl::Status RestrictFiles(const std::vector<std::string>& folders) {
  const long abi = syscall(SYS_landlock_create_ruleset, nullptr, 0,  // NOLINT(runtime/int)
                           LANDLOCK_CREATE_RULESET_VERSION);
  if (abi < 1) return Missing("this kernel has no Landlock, or does not enable it");
  const Rights rights = RightsOf(static_cast<int>(abi));
  const Descriptor rules(
      static_cast<int>(syscall(SYS_landlock_create_ruleset, &rights, sizeof(rights), 0)));
  if (rules.get() < 0) return Missing("making rules of Landlock");
  for (const std::string& folder : folders) RETURN_IF_ERROR(AllowReading(rules.get(), folder));
  if (syscall(SYS_landlock_restrict_self, rules.get(), 0) != 0) return Missing("Landlock");
  return absl::OkStatus();
}

// ---- seccomp: the system calls that a compiler, and this program around it, need

#if defined(__x86_64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_X86_64;
#elif defined(__aarch64__)
constexpr uint32_t kArchitecture = AUDIT_ARCH_AARCH64;
#else
#error "seccomp: name this architecture"
#endif

// Those that are allowed whatever their arguments are.
constexpr uint32_t kCalls[] = {
    // Memory and time.
    SYS_brk,
    SYS_mmap,
    SYS_munmap,
    SYS_mprotect,
    SYS_mremap,
    SYS_madvise,
    SYS_clock_gettime,
    SYS_clock_getres,
    SYS_clock_nanosleep,
    SYS_nanosleep,
    SYS_gettimeofday,
    SYS_times,
    SYS_getrusage,
    SYS_getrandom,
    // Files, which Landlock restricts.
    SYS_openat,
    SYS_close,
    SYS_read,
    SYS_readv,
    SYS_pread64,
    SYS_write,
    SYS_writev,
    SYS_lseek,
    SYS_fstat,
    SYS_newfstatat,
    SYS_statx,
    SYS_faccessat,
    SYS_readlinkat,
    SYS_getcwd,
    SYS_getdents64,
    // UndefinedBehaviorSanitizer looks through a pipe whether memory can be read.
    SYS_pipe2,
    // The channel to the parent.
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_sendto,
    SYS_sendmsg,
    SYS_shutdown,
    SYS_getsockname,
    SYS_ppoll,
    SYS_eventfd2,
    // Threads, and signals to itself.
    SYS_futex,
    SYS_set_robust_list,
    SYS_rseq,
    SYS_sched_yield,
    SYS_sched_getaffinity,
    SYS_set_tid_address,
    SYS_gettid,
    SYS_getpid,
    SYS_rt_sigaction,
    SYS_rt_sigprocmask,
    SYS_rt_sigreturn,
    SYS_sigaltstack,
    SYS_restart_syscall,
    SYS_exit,
    SYS_exit_group,
    // The system.
    SYS_uname,
    SYS_sysinfo,
    SYS_getuid,
    SYS_geteuid,
    SYS_getgid,
    SYS_getegid,
#if defined(__x86_64__)
    SYS_pipe,
    SYS_open,
    SYS_stat,
    SYS_lstat,
    SYS_access,
    SYS_readlink,
    SYS_poll,
    SYS_time,
    SYS_getrlimit,
    SYS_setrlimit,
    SYS_arch_prctl,
#endif
};

// Those that are allowed with certain arguments.
struct Rule {
  uint32_t call;
  uint32_t argument;  // its number
  uint16_t test;      // BPF_JEQ: it is `value`; BPF_JSET: it has a bit of it
  uint32_t value;
};

std::vector<Rule> Rules() {
  return {
      {SYS_clone, 0, BPF_JSET, CLONE_THREAD},
      {SYS_tgkill, 0, BPF_JEQ, static_cast<uint32_t>(getpid())},
      {SYS_prlimit64, 0, BPF_JEQ, 0},  // its own limits
      {SYS_prctl, 0, BPF_JEQ, PR_SET_NAME},
      {SYS_prctl, 0, BPF_JEQ, PR_GET_DUMPABLE},
      {SYS_fcntl, 1, BPF_JEQ, F_GETFD},
      {SYS_fcntl, 1, BPF_JEQ, F_SETFD},
      {SYS_fcntl, 1, BPF_JEQ, F_GETFL},
  };
}

constexpr uint16_t kLoad = BPF_LD | BPF_W | BPF_ABS;
constexpr uint16_t kReturn = BPF_RET | BPF_K;
constexpr uint32_t kNumberAt = offsetof(seccomp_data, nr);
constexpr uint32_t kArgumentsAt = offsetof(seccomp_data, args);

// Goes on where the test holds, else skips so many steps.
sock_filter Require(uint16_t test, uint32_t value, uint8_t steps) {
  return BPF_JUMP(static_cast<uint16_t>(BPF_JMP | BPF_K | test), value, 0, steps);
}

// Compares the lower halves of arguments, which are ints (the machine is little-endian).
std::vector<sock_filter> Filter() {
  std::vector<sock_filter> filter = {
      BPF_STMT(kLoad, offsetof(seccomp_data, arch)),
      BPF_JUMP(BPF_JMP | BPF_K | BPF_JEQ, kArchitecture, 1, 0),
      BPF_STMT(kReturn, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(kLoad, kNumberAt),
  };
  for (const uint32_t call : kCalls) {
    filter.push_back(Require(BPF_JEQ, call, 1));
    filter.push_back(BPF_STMT(kReturn, SECCOMP_RET_ALLOW));
  }
  for (const Rule& rule : Rules()) {
    filter.push_back(Require(BPF_JEQ, rule.call, 4));
    filter.push_back(BPF_STMT(kLoad, kArgumentsAt + rule.argument * uint32_t{sizeof(uint64_t)}));
    filter.push_back(Require(rule.test, rule.value, 1));
    filter.push_back(BPF_STMT(kReturn, SECCOMP_RET_ALLOW));
    filter.push_back(BPF_STMT(kLoad, kNumberAt));
  }
  // Its flags lie in memory, which no filter sees; the C library tries clone next.
  filter.push_back(Require(BPF_JEQ, SYS_clone3, 1));
  filter.push_back(BPF_STMT(kReturn, SECCOMP_RET_ERRNO | ENOSYS));
  filter.push_back(BPF_STMT(kReturn, SECCOMP_RET_ERRNO | EPERM));
  return filter;
}

absl::Status RestrictSystemCalls() {
  std::vector<sock_filter> filter = Filter();
  const sock_fprog program = {static_cast<uint16_t>(filter.size()), filter.data()};
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0) return absl::OkStatus();
  return Missing("this kernel has no seccomp filters");
}

}  // namespace

absl::Status Confine(const Confinement& confinement) {
  RETURN_IF_ERROR(CheckOneThread());
  if (confinement.silent) RETURN_IF_ERROR(Silence());
  RETURN_IF_ERROR(SetLimits(confinement));
  if (prctl(PR_SET_DUMPABLE, 0) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    return Missing("prctl");
  absl::Status status = RestrictFiles(confinement.folders);
  status.Update(RestrictSystemCalls());
  return status;
}

}  // namespace warpcall::process
