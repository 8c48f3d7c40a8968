// Confines processes of the test's own and tries what they may no longer do.
#include "server/process/confinement.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/landlock.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/temp_folder.h"

namespace warpcall::process {
namespace {

using ::testing::HasSubstr;
using testing::TempFolder;

constexpr int kNotConfined = 101;

// Returns how a process that is confined and then calls `act` ends, as wait tells it.
int StatusOf(const Confinement& confinement, const std::function<int()>& act) {
  const pid_t pid = fork();
  if (pid == 0) _exit(Confine(confinement).ok() ? act() : kNotConfined);
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return status;
}

// Returns the errno of a call in a confined process, 0 where it succeeds.
int ErrnoOf(const Confinement& confinement, const std::function<bool()>& succeeds) {
  const int status = StatusOf(confinement, [&] { return succeeds() ? 0 : errno; });
  EXPECT_TRUE(WIFEXITED(status)) << status;
  return WEXITSTATUS(status);
}

bool Opens(const std::string& path, int flags = O_RDONLY) {
  return open(path.c_str(), flags, 0600) >= 0;
}

class ConfinementTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION) < 1)
      GTEST_SKIP() << "this kernel has no Landlock";
    ASSERT_EQ(mkdir(folder_.Path("open").c_str(), 0700), 0);
    std::ofstream(folder_.Path("open/header.h")) << "text";
    std::ofstream(folder_.Path("secret")) << "text";
  }

  const TempFolder folder_;
  const Confinement files_ = {.folders = {folder_.Path("open")}};
};

TEST_F(ConfinementTest, FilesOfTheFoldersAreReadAndNoOthers) {
  EXPECT_EQ(ErrnoOf(files_, [&] { return Opens(folder_.Path("open/header.h")); }), 0);
  EXPECT_EQ(ErrnoOf(files_, [&] { return Opens(folder_.Path("secret")); }), EACCES);
  EXPECT_EQ(ErrnoOf(files_, [&] { return Opens(folder_.Path("open/../secret")); }), EACCES);
  EXPECT_EQ(ErrnoOf(files_, [] { return Opens("/etc/passwd"); }), EACCES);
  EXPECT_EQ(ErrnoOf(files_, [] { return Opens("/proc/self/environ"); }), EACCES);
  EXPECT_EQ(ErrnoOf(files_, [&] { return Opens(folder_.Path("open/header.h"), O_WRONLY); }),
            EACCES);
  EXPECT_EQ(ErrnoOf(files_, [&] { return Opens(folder_.Path("open/new"), O_WRONLY | O_CREAT); }),
            EACCES);
  EXPECT_EQ(ErrnoOf({}, [&] { return Opens(folder_.Path("open/header.h")); }), EACCES);
}

TEST_F(ConfinementTest, NoSocketProcessOrProgramIsMade) {
  EXPECT_EQ(ErrnoOf({}, [] { return socket(AF_INET, SOCK_STREAM, 0) >= 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({},
                    [] {
                      int ends[2];
                      return socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0;
                    }),
            EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return fork() >= 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) >= 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return syscall(SYS_clone3, nullptr, 0) >= 0; }), ENOSYS);
  EXPECT_EQ(ErrnoOf({},
                    [] {
                      char* const words[] = {const_cast<char*>("true"), nullptr};
                      return execv("/bin/true", words) == 0;
                    }),
            EPERM);
}

TEST_F(ConfinementTest, OtherProcessesAreOutOfReach) {
  EXPECT_EQ(ErrnoOf({}, [] { return kill(getppid(), 0) == 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return syscall(SYS_tgkill, getppid(), getppid(), 0) == 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return syscall(SYS_pidfd_open, getppid(), 0) >= 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return prlimit(getppid(), RLIMIT_CORE, nullptr, nullptr) == 0; }),
            EPERM);
  EXPECT_EQ(
      ErrnoOf({}, [] { return syscall(SYS_process_vm_readv, getppid(), 0, 0, 0, 0, 0) >= 0; }),
      EPERM);
}

TEST_F(ConfinementTest, NothingIsGivenBack) {
  EXPECT_EQ(StatusOf({}, [] { return prctl(PR_GET_DUMPABLE); }), 0);
  EXPECT_EQ(ErrnoOf({}, [] { return prctl(PR_SET_DUMPABLE, 1) == 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({}, [] { return prctl(PR_SET_PDEATHSIG, 0) == 0; }), EPERM);
  EXPECT_EQ(ErrnoOf({},
                    [] {
                      const rlimit more = {1 << 20, 1 << 20};
                      return setrlimit(RLIMIT_CORE, &more) == 0;
                    }),
            EPERM);
}

TEST_F(ConfinementTest, ThreadsAndTheProcessesOwnEndStay) {
  EXPECT_EQ(StatusOf({},
                     [] {
                       int done = 0;
                       std::thread([&done] { done = Opens("/etc/passwd") ? 2 : 1; }).join();
                       return done - 1;
                     }),
            0);
  const int aborted = StatusOf({}, []() -> int { std::abort(); });
  EXPECT_TRUE(WIFSIGNALED(aborted)) << aborted;
  EXPECT_EQ(WTERMSIG(aborted), SIGABRT);
}

TEST_F(ConfinementTest, LimitsEndTheProcess) {
  const int looped = StatusOf({.cpu_seconds = 1}, []() -> int {
    for (volatile bool on = true; on;) {
    }
    return 0;
  });
  EXPECT_TRUE(WIFSIGNALED(looped)) << looped;
  EXPECT_EQ(WTERMSIG(looped), SIGXCPU);
  if (!kLimitsMemory) GTEST_SKIP() << "a sanitizer reserves more memory than the limit";
  const auto maps = [](size_t bytes) {
    return mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
  };
  const Confinement limited = {.address_space_bytes = int64_t{4} << 30};
  EXPECT_EQ(ErrnoOf(limited, [&] { return maps(size_t{4} << 30); }), ENOMEM);
  EXPECT_EQ(ErrnoOf(limited, [&] { return maps(size_t{3} << 30); }), 0);
}

TEST_F(ConfinementTest, ASilentProcessWritesNowhereAndForgetsItsEnvironment) {
  setenv("WARPCALL_TEST_SECRET", "hunter2", 1);
  const char* const secret = getenv("WARPCALL_TEST_SECRET");
  const std::string log = folder_.Path("log");
  const int file = open(log.c_str(), O_RDWR | O_CREAT, 0600);
  const auto writes = [&] {
    signal(SIGXFSZ, SIG_IGN);
    dprintf(STDERR_FILENO, "to stderr");
    return write(file, "x", 1) == 1;
  };
  EXPECT_EQ(ErrnoOf({.silent = true}, writes), EFBIG);
  EXPECT_EQ(ErrnoOf({}, [&] { return write(file, "x", 1) == 1; }), 0);
  EXPECT_EQ(StatusOf({.silent = true},
                     [&] { return *secret != 0 || getenv("WARPCALL_TEST_SECRET") != nullptr; }),
            0);
  EXPECT_EQ(StatusOf({}, [&] { return *secret == 'h' ? 0 : 1; }), 0);
  struct stat null = {};
  ASSERT_EQ(stat("/dev/null", &null), 0);
  EXPECT_EQ(StatusOf({.silent = true},
                     [&] {
                       struct stat standard = {};
                       fstat(STDERR_FILENO, &standard);
                       return standard.st_rdev == null.st_rdev ? 0 : 1;
                     }),
            0);
  close(file);
}

TEST_F(ConfinementTest, AProcessWithThreadsAndAMissingFolderAreRefused) {
  const pid_t pid = fork();
  if (pid == 0) {
    std::thread other([] { pause(); });
    const absl::Status refused = Confine({});
    _exit(absl::IsInternal(refused) && refused.message().find("2 threads") != std::string::npos
              ? 0
              : 1);
  }
  int status = 1;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(WEXITSTATUS(StatusOf({.folders = {folder_.Path("none")}}, [] { return 0; })),
            kNotConfined);
}

}  // namespace
}  // namespace warpcall::process
