#include "tests/bench/transport_server.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace warpcall::bench {
namespace {

constexpr int64_t kKib = 1024;
constexpr char kBecomeServer[] = "--become_server";

}  // namespace

SocketFolder::SocketFolder() {
  // Not in TMPDIR: a socket's path has 107 characters at most.
  char path[] = "/tmp/warpcall-bench-XXXXXX";
  if (mkdtemp(path) != nullptr) path_ = path;
}

SocketFolder::~SocketFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string SocketFolder::ListenAddresses(const std::string& name) const {
  return absl::StrCat("127.0.0.1:0,unix:", path_, "/", name, ".sock");
}

absl::StatusOr<std::unique_ptr<BenchServer>> BenchServer::Start(
    const std::vector<std::string>& words) {
  std::unique_ptr<BenchServer> server(new BenchServer(words));
  const std::string& line = server->process_.first_line();
  const size_t begin = line.find("serving on ");
  std::vector<std::string> parts;
  if (begin != std::string::npos) parts = absl::StrSplit(line.substr(begin + 11), ',');
  for (absl::string_view part : parts) {
    if (absl::StartsWith(part, "unix:"))
      server->unix_ = std::string(part);
    else if (absl::ConsumePrefix(&part, " metrics on "))
      server->metrics_ = std::string(part);
    else
      server->tcp_ = std::string(part);
  }
  if (server->tcp_.empty() || server->unix_.empty())
    return absl::UnavailableError(absl::StrCat("it did not start (its first line: \"", line,
                                               "\"): ", absl::StrJoin(words, " ")));
  return server;
}

double BenchServer::CpuSeconds() const {
  clockid_t clock;
  timespec time = {};
  if (clock_getcpuclockid(process_.pid(), &clock) == 0) clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

int64_t BenchServer::ProcKib(const char* name, const char* field) const {
  std::ifstream file(absl::StrCat("/proc/", process_.pid(), "/", name));
  for (std::string line; std::getline(file, line);) {
    if (!absl::StartsWith(line, field)) continue;
    int64_t kib = 0;
    std::istringstream(line.substr(line.find(':') + 1)) >> kib;
    return kib;
  }
  return 0;
}

int64_t BenchServer::ResidentBytes() const {
  // Counted page by page; VmRSS of status is summed from counters that lag behind on many cores.
  return kKib * ProcKib("smaps_rollup", "Rss:");
}

int64_t BenchServer::ResidentBytesPeak() const { return kKib * ProcKib("status", "VmHWM:"); }

absl::Status BenchServer::Stop() {
  process_.Signal(SIGTERM);
  const int exit_status = process_.Wait();
  if (exit_status == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the server ended with status ", exit_status));
}

std::string OwnProgram() {
  std::error_code ignored;
  return std::filesystem::read_symlink("/proc/self/exe", ignored).string();
}

std::string DefaultWarpcalld() {
  std::error_code ignored;
  const std::filesystem::path beside =
      std::filesystem::path(OwnProgram()).replace_filename("warpcalld");
  return std::filesystem::exists(beside, ignored) ? beside.string() : WARPCALLD_PATH;
}

void BecomeServerIfAsked(int argc, char** argv) {
  if (argc < 3 || std::strcmp(argv[1], kBecomeServer) != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  execv(argv[2], argv + 2);
  std::perror(argv[2]);
  _exit(1);
}

absl::StatusOr<std::unique_ptr<BenchServer>> StartWarpcalld(const SocketFolder& folder,
                                                            const WarpcalldOptions& options) {
  std::vector<std::string> words = {OwnProgram(),
                                    kBecomeServer,
                                    options.program,
                                    absl::StrCat("--listen=", folder.ListenAddresses("warpcalld")),
                                    "--metrics_listen=127.0.0.1:0",
                                    "--lame_duck_seconds=0",
                                    "--log_level=warning"};
  for (const std::string& flag : options.flags) {
    // A flag given replaces the default above.
    const std::string name = absl::StrCat(flag.substr(0, flag.find('=')), "=");
    std::erase_if(words, [&](const std::string& word) { return absl::StartsWith(word, name); });
    words.push_back(flag);
  }
  return BenchServer::Start(words);
}

}  // namespace warpcall::bench
