#include "tests/e2e/server_process.h"

#include <gtest/gtest.h>
#include <httplib.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/e2e/eventually.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"

namespace warpcall::testing {
namespace {

constexpr size_t kLogShownBytes = 16 << 10;

}  // namespace

ServerProcess::ServerProcess(const std::vector<std::string>& flags) {
  log_path_ = absl::StrCat(::testing::TempDir(), "/warpcalld-", getpid(), "-", rand(), ".log");
  std::vector<std::string> words = {ProgramPath("warpcalld"), "--listen=127.0.0.1:0",
                                    "--metrics_listen=127.0.0.1:0", "--lame_duck_seconds=0",
                                    "--self_test=off"};
  for (const std::string& flag : flags) {
    // A flag given here replaces the default above.
    const std::string name = flag.substr(0, flag.find('='));
    std::erase_if(words,
                  [&](const std::string& word) { return absl::StartsWith(word, name + "="); });
    words.push_back(flag);
  }
  process_ = std::make_unique<ChildProcess>(words, log_path_);
  const std::string& line = process_->first_line();
  // "warpcalld: serving on ADDRESS, metrics on HOST:PORT"
  const size_t begin = line.find("serving on ");
  const size_t middle = line.find(", metrics on ");
  if (middle == std::string::npos) {
    ADD_FAILURE() << "it did not start: " << line << log();
    return;
  }
  address_ = line.substr(begin + 11, middle - begin - 11);
  metrics_port_ = std::atoi(line.c_str() + line.rfind(':') + 1);
}

ServerProcess::~ServerProcess() {
  process_.reset();
  // The log takes the cause with it: a sanitizer's report, or the last lines before a crash.
  if (::testing::Test::HasFailure()) {
    const std::string said = log();
    const size_t begin = said.size() > kLogShownBytes ? said.size() - kLogShownBytes : 0;
    std::cerr << "the last that the server of this failed test said:\n" << said.substr(begin);
  }
  unlink(log_path_.c_str());
}

void ServerProcess::AwaitRows() const {
  EXPECT_TRUE(Eventually([this] { return Get("/readyz") == std::pair(200, std::string("ok\n")); }));
}

void ServerProcess::Signal(int signal) { process_->Signal(signal); }

int ServerProcess::Stop() {
  Signal(SIGTERM);
  return Wait();
}

int ServerProcess::Wait() { return process_->Wait(); }

std::pair<int, std::string> ServerProcess::Http(const std::string& method, const std::string& path,
                                                const std::string& body) const {
  httplib::Client client("127.0.0.1", metrics_port_);
  client.set_read_timeout(std::chrono::minutes(10));
  httplib::Request request;
  request.method = method;
  request.path = path;
  request.body = body;
  const httplib::Result result = client.send(request);
  if (!result) return {0, ""};
  return {result->status, result->body};
}

std::string ServerProcess::log() const {
  std::string text = ReadFile(log_path_);
  // Cut LeakSanitizer's note on a thread that ends meanwhile. Reports of leaks keep their lines.
  for (size_t at; (at = text.find("was not suspended. False leaks are possible.")) != text.npos;) {
    const size_t begin = text.rfind('\n', at) + 1;
    text.erase(begin, text.find('\n', at) - begin + 1);
  }
  return text;
}

bool ServerProcess::Logs(const std::string& text) const {
  return Eventually([&] { return absl::StrContains(log(), text); });
}

int64_t ServerProcess::ProcBytes(const char* name, const char* field) const {
  std::ifstream file(absl::StrCat("/proc/", pid(), "/", name));
  for (std::string word; file >> word;) {
    if (word != field) continue;
    int64_t kib = 0;
    file >> kib;
    return kib * 1024;
  }
  return 0;
}

int64_t ServerProcess::ResidentBytes() const {
  // Counts page by page; status and statm sum
  // up counters that lag behind on many cores.
  return ProcBytes("smaps_rollup", "Rss:");
}

int64_t ServerProcess::PeakResidentBytes() const { return ProcBytes("status", "VmHWM:"); }

}  // namespace warpcall::testing
