#include "tests/e2e/server_process.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/programs.h"

namespace warpcall::testing {
namespace {

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  for (ssize_t bytes; (bytes = read(fd, buffer, sizeof(buffer))) > 0;)
    text.append(buffer, static_cast<size_t>(bytes));
  return text;
}

}  // namespace

ServerProcess::ServerProcess(const std::vector<std::string>& flags) {
  log_path_ = absl::StrCat(::testing::TempDir(), "/warpcalld-", getpid(), "-", rand(), ".log");
  std::vector<std::string> words = {ProgramPath("warpcalld"), "--listen=127.0.0.1:0",
                                    "--metrics_listen=127.0.0.1:0", "--lame_duck_seconds=0"};
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
  unlink(log_path_.c_str());
}

void ServerProcess::Signal(int signal) { process_->Signal(signal); }

int ServerProcess::Stop() {
  Signal(SIGTERM);
  return Wait();
}

int ServerProcess::Wait() { return process_->Wait(); }

std::pair<int, std::string> ServerProcess::Http(const std::string& method, const std::string& path,
                                                const std::string& body) const {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(metrics_port_));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const std::string request =
      absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n",
                   "Content-Length: ", body.size(), "\r\n\r\n", body);
  std::string reply;
  if (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
      write(fd, request.data(), request.size()) == static_cast<ssize_t>(request.size()))
    reply = ReadAll(fd);
  close(fd);
  const size_t head = reply.find("\r\n\r\n");
  if (head == std::string::npos) return {0, ""};
  return {std::atoi(reply.c_str() + reply.find(' ')), reply.substr(head + 4)};
}

std::map<std::string, double> ServerProcess::Metrics() const {
  std::map<std::string, double> values;
  for (absl::string_view line : absl::StrSplit(Get("/metrics").second, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    values[std::string(line.substr(0, space))] = std::atof(std::string(line.substr(space)).c_str());
  }
  return values;
}

double SumOf(const std::map<std::string, double>& metrics, const std::string& name,
             const std::vector<std::string>& labels) {
  double sum = 0;
  for (const auto& [series, value] : metrics) {
    bool matches = series == name || absl::StartsWith(series, name + "{");
    for (const std::string& label : labels) matches = matches && absl::StrContains(series, label);
    if (matches) sum += value;
  }
  return sum;
}

std::string ServerProcess::log() const {
  std::ifstream file(log_path_);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
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
  // Counted page by page; what status and statm say is summed from counters that lag behind on many
  // cores.
  return ProcBytes("smaps_rollup", "Rss:");
}

int64_t ServerProcess::PeakResidentBytes() const { return ProcBytes("status", "VmHWM:"); }

}  // namespace warpcall::testing
