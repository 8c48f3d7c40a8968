// Compares the data path with gRPC itself: echoes of a ByteBuffer (nothing but gRPC), echoes of a
// protobuf `bytes` field (by generated code), and warpcalld, side by side in one run. Each server
// is a process of its own; each connection has a caller that calls in a closed loop.
//
//   warpcall_transport_bench [--quick] [--benchmarks_md] ...   --help says the rest
//
// Latencies are a client's; server CPU is the server process's (workers of several GPUs not
// counted). No exit status depends on timings: 1 means that a call failed or an answer was wrong.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "client/cli/common/inputs.h"
#include "proto/common/status_macros.h"
#include "tests/bench/transport_echo.h"
#include "tests/bench/transport_measure.h"
#include "tests/bench/transport_table.h"
#include "tests/e2e/child_process.h"
#include "tests/e2e/server_process.h"
#include "tests/temp_folder.h"
#include "warpcall/client.h"

namespace warpcall::bench {
namespace {

constexpr int kUsageError = 2;
constexpr double kMib = 1 << 20;
constexpr int64_t kMessageMib = 512;  // the server's default
constexpr pid_t kNoPid = -1;          // a peer's; its CPU time is not counted
// Resident bytes to allow for each byte in flight: the protobuf echo holds four copies of request
// and response, two at each end, and malloc keeps as much again in idle servers. With half of this
// factor, 8 x 256 MiB ran a machine of 23 GiB out of memory.
constexpr int kResidentPerByteOnItsWay = 8;

double AvailableMib() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    int64_t kib = 0;
    if (absl::StartsWith(line, "MemAvailable:") &&
        absl::SimpleAtoi(line.substr(13, line.rfind(" kB") - 13), &kib))
      return static_cast<double>(kib) / 1024;
  }
  return 0;
}

const std::map<std::string, Transport> kTransports = {{"tcp", Transport::kTcp},
                                                      {"unix", Transport::kUnix}};
const std::map<std::string, ContenderKind> kContenders = {
    {"echo", ContenderKind::kEcho},         {"echo_defaults", ContenderKind::kEchoDefaults},
    {"protobuf", ContenderKind::kProtobuf}, {"raw", ContenderKind::kRaw},
    {"infer", ContenderKind::kInfer},       {"library", ContenderKind::kLibrary},
    {"peer", ContenderKind::kPeer},         {"peer_stub", ContenderKind::kPeerStub}};

struct TransportOptions {
  std::vector<uint64_t> sizes = {64, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20, 256 << 20};
  std::vector<int> connections = {1, 4, 8, 32};
  std::vector<Transport> transports = {Transport::kTcp, Transport::kUnix};
  std::vector<ContenderKind> contenders = {ContenderKind::kEcho,     ContenderKind::kEchoDefaults,
                                           ContenderKind::kProtobuf, ContenderKind::kRaw,
                                           ContenderKind::kInfer,    ContenderKind::kLibrary};
  double seconds = 2;
  int64_t in_flight_mib = 4096;
  std::string device = {};
  std::string server_flags = {};
  std::string peer = {};
  bool one_connection = false;
  bool benchmarks_md = false;
};

class TransportBench {
 public:
  explicit TransportBench(TransportOptions options) : options_(std::move(options)) {}

  absl::Status Run();

 private:
  bool Has(ContenderKind kind) const { return absl::c_linear_search(options_.contenders, kind); }
  // Those that `kind` is called for; "" of an echo.
  std::vector<std::string> KernelsOf(ContenderKind kind) const;
  absl::Status StartServers();
  absl::Status FindDevice();
  absl::Status MeasureAll();
  absl::Status MeasurePoint(const Point& point);
  // "" when the point can be measured.
  std::string SkipReason(const Point& point) const;
  // Addresses for a server to listen on: any free TCP port of loopback, and a Unix socket `name`.
  std::string ListenAddresses(const std::string& name) const {
    return absl::StrCat("127.0.0.1:0,unix:", folder_.Path(name));
  }

  const TransportOptions options_;
  client::Tensor data_;
  double in_flight_mib_max_ = 0;
  const testing::TempFolder folder_;
  std::map<ContenderKind, std::unique_ptr<testing::ChildProcess>> echoes_;
  std::unique_ptr<testing::ServerProcess> warpcalld_;
  std::string device_;  // that warpcalld chose
  Results results_;
  std::vector<std::string> skipped_;
};

// Picks the address from "TCP,unix:PATH", or from a line that ends with it.
std::string AddressOf(const std::string& served, Transport transport) {
  const std::pair<std::string, std::string> both =
      absl::StrSplit(served.substr(served.rfind(' ') + 1), absl::MaxSplits(',', 1));
  return transport == Transport::kTcp ? both.first : both.second;
}

absl::Status TransportBench::Run() {
  const uint64_t bytes = *std::max_element(options_.sizes.begin(), options_.sizes.end());
  std::mt19937_64 random(std::random_device{}());
  ASSIGN_OR_RETURN(
      data_, cli::RandomTensor({DataType::kFloat32, {static_cast<int64_t>(bytes / sizeof(float))}},
                               cli::Distribution::kNormal, &random));
  in_flight_mib_max_ = std::min(static_cast<double>(options_.in_flight_mib),
                                AvailableMib() / kResidentPerByteOnItsWay);
  RETURN_IF_ERROR(StartServers());
  RETURN_IF_ERROR(FindDevice());
  // BENCHMARKS.md includes stdout as it is.
  std::fprintf(options_.benchmarks_md ? stderr : stdout,
               "warpcalld on %s, %u cores, %g s of each contender at each point\n\n",
               warpcalld_ == nullptr ? "no device" : device_.c_str(),
               std::thread::hardware_concurrency(), options_.seconds);
  RETURN_IF_ERROR(MeasureAll());
  if (warpcalld_ == nullptr) return absl::OkStatus();
  if (const int status = warpcalld_->Stop(); status != 0)
    return absl::InternalError(
        absl::StrCat("the server ended with status ", status, ": ", warpcalld_->log()));
  return absl::OkStatus();
}

absl::Status TransportBench::StartServers() {
  const std::string own_program = std::filesystem::read_symlink("/proc/self/exe").string();
  for (const auto& [name, kind] : kContenders) {
    if (!Has(kind) || (!IsEcho(kind) && kind != ContenderKind::kProtobuf)) continue;
    auto& echo = echoes_[kind];
    echo = std::make_unique<testing::ChildProcess>(
        std::vector<std::string>{own_program, "--serve_echo", name, ListenAddresses(name)}, "");
    if (echo->first_line().empty())
      return absl::UnavailableError(absl::StrCat("the server of ", name, " did not start"));
  }
  if (!Has(ContenderKind::kRaw) && !Has(ContenderKind::kInfer) && !Has(ContenderKind::kLibrary))
    return absl::OkStatus();
  // Room for all that may be on its way, so that no request is refused.
  std::vector<std::string> flags = {
      absl::StrCat("--listen=", ListenAddresses("warpcalld")),
      absl::StrCat("--staging_mib=", options_.in_flight_mib),
      absl::StrCat("--max_message_mib=", std::min(kMessageMib, options_.in_flight_mib)),
      absl::StrCat("--queue_mib=", options_.in_flight_mib), "--log_level=warning"};
  for (absl::string_view flag : absl::StrSplit(options_.server_flags, ' ', absl::SkipEmpty()))
    flags.emplace_back(flag);
  warpcalld_ = std::make_unique<testing::ServerProcess>(flags);
  if (warpcalld_->address().empty()) return absl::UnavailableError("warpcalld did not start");
  warpcalld_->AwaitRows();
  return absl::OkStatus();
}

absl::Status TransportBench::FindDevice() {
  if (warpcalld_ == nullptr) return absl::OkStatus();
  client::Client client(AddressOf(warpcalld_->address(), Transport::kTcp));
  absl::StatusOr<client::Result> result =
      client.Gelu(client::Tensor::FromFloats({1}, {0.5f}), "tanh", {.device = options_.device});
  if (!result.ok()) return result.status();
  device_ = result->device;
  return absl::OkStatus();
}

std::string TransportBench::SkipReason(const Point& point) const {
  const double mib = 2 * point.connections * static_cast<double>(point.bytes) / kMib;
  if (mib <= in_flight_mib_max_) return "";
  return absl::StrFormat(
      "%s, %d connections, %s: skipped, %.0f MiB of requests and responses would be on their way; "
      "the limit is %.0f (--in_flight_mib, and one in %d of the bytes of memory available)",
      TransportName(point.transport), point.connections, SizeText(point.bytes), mib,
      in_flight_mib_max_, kResidentPerByteOnItsWay);
}

std::vector<std::string> TransportBench::KernelsOf(ContenderKind kind) const {
  if (IsEcho(kind) || kind == ContenderKind::kProtobuf) return {""};
  // ModelInfer runs gelu only beside a peer, to compare them.
  const bool both = kind == ContenderKind::kRaw || IsPeer(kind) ||
                    (kind == ContenderKind::kInfer && Has(ContenderKind::kPeer));
  if (both) return {"identity", "gelu"};
  return {"identity"};
}

absl::Status TransportBench::MeasurePoint(const Point& point) {
  std::vector<Seat> seats;
  for (const ContenderKind kind : options_.contenders) {
    const auto echo = echoes_.find(kind);
    const auto add = [&](const std::string& served, pid_t pid) {
      for (const std::string& kernel : KernelsOf(kind))
        seats.push_back({{kind, kernel}, AddressOf(served, point.transport), pid});
    };
    if (IsPeer(kind))
      add(options_.peer, kNoPid);
    else if (echo != echoes_.end())
      add(echo->second->first_line(), echo->second->pid());
    else
      add(warpcalld_->address(), warpcalld_->pid());
  }
  std::vector<Figures> figures;
  ASSIGN_OR_RETURN(figures, Measure(seats, {.point = point,
                                            .seconds = options_.seconds,
                                            .device = options_.device,
                                            .data = data_,
                                            .one_connection = options_.one_connection}));
  for (size_t i = 0; i < seats.size(); ++i) results_.Add({point, seats[i].contender, figures[i]});
  return absl::OkStatus();
}

absl::Status TransportBench::MeasureAll() {
  if (!options_.benchmarks_md) std::printf("%s", TableHeading().c_str());
  for (Transport transport : options_.transports) {
    for (int connections : options_.connections) {
      // BENCHMARKS.md lists only one connection's small requests for a Unix socket.
      if (options_.benchmarks_md && transport == Transport::kUnix && connections != 1) continue;
      for (size_t bytes : options_.sizes) {
        if (options_.benchmarks_md && transport == Transport::kUnix && bytes > kSmallBytesMax)
          continue;
        const Point point = {transport, connections, bytes};
        if (std::string reason = SkipReason(point); !reason.empty()) {
          skipped_.push_back(std::move(reason));
          continue;
        }
        RETURN_IF_ERROR(MeasurePoint(point));
        if (options_.benchmarks_md)
          std::fprintf(stderr, "%s", TableLines(results_, point).c_str());
        else
          std::printf("%s", TableLines(results_, point).c_str());
        std::fflush(stdout);
      }
    }
  }
  if (options_.benchmarks_md) std::printf("%s", BenchmarksTable(results_).c_str());
  for (const std::string& reason : skipped_)
    std::fprintf(options_.benchmarks_md ? stderr : stdout, "\n%s\n", reason.c_str());
  return absl::OkStatus();
}

std::string CheckFloats(const std::string& bytes) {
  const uint64_t value = std::stoull(bytes);
  if (value >= sizeof(float) && value % sizeof(float) == 0) return "";
  return absl::StrCat(bytes, " bytes are not one or more float32");
}

void AddOptions(CLI::App* app, TransportOptions* options) {
  app->option_defaults()->always_capture_default();
  app->add_option("--sizes", options->sizes, "Bytes of the tensor: 64,4KiB,1MiB")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CheckFloats);
  app->add_option("--connections", options->connections, "Connections, each a closed loop")
      ->delimiter(',')
      ->check(CLI::Range(1, 1024));
  app->add_option("--transports", options->transports, "tcp, unix")
      ->delimiter(',')
      ->default_str("tcp,unix")
      ->transform(CLI::CheckedTransformer(kTransports));
  app->add_option(
         "--contenders", options->contenders,
         "echo, echo_defaults, protobuf, raw (ByteBuffers to warpcalld: identity, gelu), infer "
         "(the "
         "same by ModelInfer, identity; gelu too beside a peer), library (the client library, "
         "identity), peer (the server of --peer by the same ModelInfer: identity, gelu), peer_stub "
         "(the same by generated code and with gRPC's defaults, as NVIDIA Triton's clients call)")
      ->delimiter(',')
      ->default_str("echo,echo_defaults,protobuf,raw,library")
      ->transform(CLI::CheckedTransformer(kContenders));
  app->add_option("--seconds", options->seconds, "Of each contender at each point")
      ->check(CLI::Range(0.01, 3600.0));
  app->add_option("--in_flight_mib", options->in_flight_mib,
                  "Points with more bytes of requests and responses on their way are skipped")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app->add_option("--device", options->device, "Device of warpcalld; empty: its choice");
  app->add_option("--peer", options->peer,
                  "HOST:PORT of a server of the Open Inference Protocol, with the models "
                  "identity_fp32 and gelu_fp32 (x to y)");
  app->add_flag("--one_connection", options->one_connection,
                "The closed loops of a contender share one connection");
  app->add_option("--server_flags", options->server_flags,
                  "More flags for warpcalld, separated by blanks");
  app->add_flag(
      "--benchmarks_md", options->benchmarks_md,
      "Print the table of BENCHMARKS.md: one and eight connections, and a Unix socket's p50");
}

// "" when a peer's address is there just when it is called.
std::string CheckPeer(const TransportOptions& options) {
  const bool called = absl::c_any_of(options.contenders, IsPeer);
  if (called != options.peer.empty() &&
      (!called || options.transports == std::vector<Transport>{Transport::kTcp}))
    return "";
  return "the contender peer needs --peer HOST:PORT and --transports tcp, and --peer needs it";
}

// Smaller sets where the command line names none.
void Shorten(const CLI::App& app, bool quick, TransportOptions* options) {
  if ((quick || options->benchmarks_md) && app.count("--connections") == 0)
    options->connections = {1, kBenchmarksConnections};
  if (!quick) return;
  if (app.count("--sizes") == 0) options->sizes = {64, 4 << 10, 1 << 20, 16 << 20};
  if (app.count("--transports") == 0 && !options->benchmarks_md)
    options->transports = {Transport::kTcp};
  if (app.count("--seconds") == 0) options->seconds = 0.4;
}

int Main(int argc, char** argv) {
  if (argc == 4 && std::strcmp(argv[1], "--serve_echo") == 0) ServeEcho({argv[2], argv[3]});
  TransportOptions options;
  bool quick = false;
  CLI::App app(
      "What the data path costs against gRPC itself: echoes and warpcalld, each in a process of "
      "its own, taking turns.",
      "warpcall_transport_bench");
  AddOptions(&app, &options);
  app.add_flag("--quick", quick, "Fewer and shorter points: less than a minute");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsageError;
  }
  Shorten(app, quick, &options);
  if (const std::string mistake = CheckPeer(options); !mistake.empty()) {
    std::fprintf(stderr, "%s\n", mistake.c_str());
    return kUsageError;
  }
  const absl::Status status = TransportBench(std::move(options)).Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace warpcall::bench

int main(int argc, char** argv) { return warpcall::bench::Main(argc, argv); }
