// Behaviour that operators rely on, in the real server: errors at start, owners of sockets, sources
// of flags, SIGHUP, the log.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/eventually.h"
#include "tests/e2e/held_request.h"
#include "tests/e2e/pending_call.h"
#include "tests/e2e/raw_call.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"
#include "tests/server/foreign_addresses.h"
#include "tests/temp_folder.h"
#include "warpcall/client.h"

namespace warpcall::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kFailed = 1;

// A server that does not start: its exit status and its output.
struct Failure {
  int status;
  std::string said;
};

Failure StartToFail(const std::vector<std::string>& flags) {
  const TempFolder folder;
  // The CPU alone: GPUs would have staging of their own.
  std::vector<std::string> words = {ProgramPath("warpcalld"), "--self_test=off", "--devices=cpu"};
  words.insert(words.end(), flags.begin(), flags.end());
  ChildProcess process(words, folder.Path("log"));
  if (!process.first_line().empty()) {
    ADD_FAILURE() << "it started: " << process.first_line();
    process.Signal(SIGKILL);
  }
  const int status = process.Wait();
  return {status, ReadFile(folder.Path("log"))};
}

void ExpectNoStart(const std::vector<std::string>& flags, const std::string& text) {
  const Failure failure = StartToFail(flags);
  EXPECT_EQ(failure.status, kFailed);
  EXPECT_THAT(failure.said, HasSubstr(text));
}

bool Serves(const std::string& address) {
  return Execute(Connect(address), Request("gelu", {FloatTensor(4)})).status.ok();
}

TEST(OperatorTest, EachReasonNotToListenHasItsWords) {
  const TempFolder folder;
  const ServerProcess server({"--self_test=off"});
  const std::string free = "--metrics_listen=127.0.0.1:0";
  const auto in_use = [&](const std::string& address) {
    return absl::StrCat("cannot listen on ", address, ": port ",
                        address.substr(address.rfind(':') + 1), " is in use by process ",
                        server.pid(), " (warpcalld)");
  };
  ExpectNoStart({free, "--listen=" + server.address()}, in_use(server.address()));
  ExpectNoStart({"--listen=127.0.0.1:0", "--metrics_listen=" + server.metrics_address()},
                in_use(server.metrics_address()));
  if (!MayListenAtForeignAddresses()) {
    // RFC 5737 keeps this network for documents.
    const std::string foreign = "cannot listen on 192.0.2.1:0: this machine has no such address";
    ExpectNoStart({free, "--insecure", "--listen=192.0.2.1:0"}, foreign);
    ExpectNoStart({"--listen=127.0.0.1:0", "--metrics_listen=192.0.2.1:0"}, foreign);
  }
  ExpectNoStart({free, "--insecure", "--listen=no host:0"},
                "cannot listen on no host:0: the host no host: ");
  const std::string missing = folder.Path("missing");
  ExpectNoStart({free, "--listen=unix:" + missing + "/w.sock"},
                absl::StrCat("cannot listen on unix:", missing, "/w.sock: the folder ", missing,
                             ": No such file or directory"));
  EXPECT_TRUE(Serves(server.address()));
}

TEST(OperatorTest, ASecondServerDoesNotTakeASocketFromTheFirst) {
  const TempFolder folder;
  const std::string address = "unix:" + folder.Path("w.sock");
  ServerProcess first({"--self_test=off", "--listen=" + address});
  ExpectNoStart({"--metrics_listen=127.0.0.1:0", "--listen=" + address},
                absl::StrCat("cannot listen on ", address, ": the socket is in use by process ",
                             first.pid(), " (warpcalld)"));
  EXPECT_TRUE(Serves(address));
  EXPECT_EQ(first.Stop(), 0);
  EXPECT_TRUE(folder.Names().empty());
}

TEST(OperatorTest, WhatADeadServerLeftIsReplaced) {
  const TempFolder folder;
  const std::string address = "unix:" + folder.Path("w.sock");
  {
    ServerProcess killed({"--self_test=off", "--listen=" + address});
    killed.Signal(SIGKILL);
    EXPECT_EQ(killed.Wait(), 128 + SIGKILL);
  }
  EXPECT_EQ(folder.Names(), std::vector<std::string>({"w.sock", "w.sock.lock"}));
  ServerProcess next({"--self_test=off", "--listen=" + address});
  EXPECT_TRUE(Serves(address));
  EXPECT_EQ(next.Stop(), 0);
}

TEST(OperatorTest, StagingBeyondTheMachinesMemoryIsRefusedWithTheSum) {
  constexpr int64_t kTib = int64_t{1} << 40;
  if (int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE) >= kTib)
    GTEST_SKIP() << "the largest --staging_mib fits this machine's memory";
  const Failure failure = StartToFail(
      {"--metrics_listen=127.0.0.1:0", "--listen=127.0.0.1:0", "--staging_mib=1048576"});
  EXPECT_EQ(failure.status, kFailed);
  EXPECT_THAT(failure.said, HasSubstr("--staging_mib: 1048576 MiB for each of 1 device is more"));
  // 1 TiB, 2048 and 2048, four times 512, and 1024.
  EXPECT_THAT(failure.said, HasSubstr("the flags allow 1055744 MiB in all"));
}

// Sets a variable for processes that are started while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

TEST(OperatorTest, ServerInfoTellsWhichServerThisIsAndWhatItWasTold) {
  const TempFolder folder;
  WriteFile(folder.Path("flags"), "# ours\nqueue_limit=7\nqueue_mib=99\nlog_level=warning\n");
  const Variable mib("WARPCALLD_QUEUE_MIB", "77");
  const Variable seconds("WARPCALLD_QUEUE_SECONDS", "60");  // equals the default
  const Variable unknown("WARPCALLD_QUEUE_LIMT", "1");
  const absl::Time before = absl::Now();
  ServerProcess server(
      {"--self_test=off", "--flagfile=" + folder.Path("flags"), "--queue_limit=5"});
  client::Client client(server.address());
  const auto info = client.ServerInfo();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_TRUE(std::regex_match(info->version, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+")));
  EXPECT_TRUE(std::regex_match(info->revision, std::regex("([0-9a-f]{12}(-dirty)?)?")))
      << info->revision;
  EXPECT_EQ(info->grpc_version, grpc::Version());
  EXPECT_GE(info->started, before);
  EXPECT_LE(info->started, absl::Now());
  char hostname[256] = "";
  gethostname(hostname, sizeof(hostname) - 1);
  EXPECT_EQ(info->hostname, hostname);
  EXPECT_EQ(info->changed_flags,
            (std::map<std::string, std::string>{{"flagfile", folder.Path("flags")},
                                                {"lame_duck_seconds", "0"},
                                                {"listen", "127.0.0.1:0"},
                                                {"log_level", "warning"},
                                                {"metrics_listen", "127.0.0.1:0"},
                                                {"queue_limit", "5"},
                                                {"queue_mib", "77"},
                                                {"self_test", "off"}}));
  EXPECT_TRUE(server.Logs("WARPCALLD_QUEUE_LIMT names no flag of this server"));
  EXPECT_EQ(server.Stop(), 0);
}

// Only the server reads the variables: its processes get their settings by arguments.
TEST(OperatorTest, AServersProcessesDoNotTakeItsVariablesForTheirs) {
  const Variable check("WARPCALLD_LANES_PER_DEVICE", "3");
  const Variable flagfile("WARPCALLD_LISTEN", "127.0.0.1:0");
  ServerProcess server({"--devices=cpu", "--test_cpu_workers=1", "--lanes_per_device=1"});
  EXPECT_TRUE(Serves(server.address()));
  EXPECT_EQ(server.Stop(), 0);
  EXPECT_THAT(server.log(), Not(HasSubstr("names no flag")));
}

TEST(OperatorTest, SighupReadsTheFlagFileAgainAndNeverStopsTheServer) {
  const TempFolder folder;
  const std::string path = folder.Path("flags");
  WriteFile(path, "log_level=info\nqueue_limit=7\n");
  ServerProcess server({"--self_test=off", "--flagfile=" + path});
  WriteFile(path, "log_level=debug\nqueue_limit=9\n");
  server.Signal(SIGHUP);
  EXPECT_TRUE(Eventually([&] { return server.Get("/log_level").second == "debug\n"; }));
  EXPECT_TRUE(
      server.Logs("log_level is debug, was info; changed, but read at "
                  "start only: queue_limit"));
  WriteFile(path, "log_level=loud\n");
  server.Signal(SIGHUP);
  EXPECT_TRUE(server.Logs("reload failed: the previous version stays in force"));
  EXPECT_EQ(server.Get("/log_level").second, "debug\n");
  EXPECT_TRUE(Serves(server.address()));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(OperatorTest, SighupRefusesAFlagFileThatTheNextStartWouldRefuse) {
  const TempFolder folder;
  const std::string path = folder.Path("flags");
  WriteFile(path, "log_level=info\n");
  ServerProcess server({"--self_test=off", "--flagfile=" + path});
  const auto failures = [&] {
    return server.Sum("warpcall_reload_failures_total", {"flag=\"flagfile\""});
  };
  int failed = 0;
  for (const auto& [line, error] : std::vector<std::pair<std::string, std::string>>{
           {"queue_limt=9", "flag queue_limt is unknown or not allowed in a file"},
           {"queue_limit=0", "queue_limit: Value 0 not in range"},
           {"staging_mib=511", "has no room for one message"},
           {"token_file=/no/such/file", "token_file: /no/such/file: No such file"},
           {"devices=tpu:0", "tpu:0"},
           {"otlp_endpoint=nowhere", "nowhere"}}) {
    WriteFile(path, "log_level=debug\n" + line + "\n");
    server.Signal(SIGHUP);
    ++failed;
    EXPECT_TRUE(Eventually([&] { return failures() == failed; })) << line;
    EXPECT_TRUE(server.Logs(error)) << error;
    EXPECT_EQ(server.Get("/log_level").second, "info\n") << line;
  }
  EXPECT_TRUE(Serves(server.address()));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(OperatorTest, SighupWithoutFilesSaysSo) {
  ServerProcess server({"--self_test=off", "--log_level=error"});
  server.Signal(SIGHUP);
  EXPECT_TRUE(server.Logs("there is nothing to read again"));
  EXPECT_TRUE(Serves(server.address()));
  EXPECT_EQ(server.Stop(), 0);
}

TEST(OperatorTest, TheLogIsJsonWhereItIsAskedFor) {
  ServerProcess server({"--self_test=off", "--log_format=json", "--log_level=debug"});
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
  request.set_request_id("a \"quoted\"\nid");
  EXPECT_TRUE(Execute(Connect(server.address()), request).status.ok());
  EXPECT_EQ(server.Stop(), 0);
  std::istringstream lines(server.log());
  int about_it = 0;
  for (std::string line; std::getline(lines, line);) {
    const nlohmann::json object = nlohmann::json::parse(line, nullptr, false);
    ASSERT_TRUE(object.is_object()) << line;
    for (const char* const key : {"ts", "level", "msg"}) EXPECT_TRUE(object.contains(key)) << line;
    if (object.value("request_id", "") != request.request_id()) continue;
    ++about_it;
    EXPECT_EQ(object["kernel"], "gelu");
    EXPECT_TRUE(object["total_ns"].is_number()) << line;
  }
  EXPECT_EQ(about_it, 1);
}

// Counts the lines that `wanted` matches, and sums the number that its group captures.
std::pair<int, int64_t> Matching(const std::string& log, const std::regex& wanted) {
  std::pair<int, int64_t> found = {0, 0};
  std::istringstream lines(log);
  for (std::string line; std::getline(lines, line);) {
    std::smatch match;
    if (!std::regex_search(line, match, wanted)) continue;
    ++found.first;
    if (match.size() > 1) found.second += std::stoll(match[1]);
  }
  return found;
}

TEST(OperatorTest, ClientsThatAreRefusedDoNotFillTheLog) {
  constexpr int kClients = 4;
  constexpr int kCallsEach = 500;
  ServerProcess server(
      FlagsForHeld({"--devices=cpu", "--lanes_per_device=1", "--drain_seconds=600"}));
  Gate gate;
  PendingCall held(server, gate.HeldRequest());
  ASSERT_TRUE(Eventually([&] { return LaneIsHeld(server); }));
  server.Signal(SIGTERM);
  ASSERT_TRUE(server.Logs("msg=draining"));
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i)
    clients.emplace_back([&server] {
      const auto channel = Connect(server.address());
      const v1::ExecuteRequest request = Request("gelu", {FloatTensor(4)});
      for (int call = 0; call < kCallsEach; ++call)
        EXPECT_EQ(Execute(channel, request).status.error_code(), grpc::StatusCode::UNAVAILABLE);
    });
  for (std::thread& client : clients) client.join();
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::steady_clock::now() - start)
          .count();
  EXPECT_EQ(server.Sum("warpcall_requests_total", {"code=\"UNAVAILABLE\""}), kClients * kCallsEach);
  EXPECT_EQ(server.Sum("warpcall_rejected_total", {"reason=\"draining\""}), kClients * kCallsEach);
  gate.Open();
  EXPECT_TRUE(held.Wait().ok());
  EXPECT_EQ(server.Wait(), 0);
  const std::string log = server.log();
  const auto [lines, none] =
      Matching(log, std::regex("msg=\"request failed\".* code=UNAVAILABLE "));
  const auto [sums, left_out] =
      Matching(log, std::regex("msg=\"refused [0-9]+ requests more: draining\".* count=([0-9]+)"));
  EXPECT_EQ(lines + left_out, kClients * kCallsEach) << log;
  EXPECT_LT(log.rfind("requests more: draining"), log.find("msg=\"stopped: drained "));
  EXPECT_LE(lines, seconds + 2);
  EXPECT_LE(sums, seconds + 2);
}

}  // namespace
}  // namespace warpcall::testing
