// What the data path costs against gRPC itself: echoes of a ByteBuffer (nothing but gRPC) and of a
// protobuf `bytes` field (what generated code makes of it), and warpcalld, side by side in one run.
// Each server is a process of its own; a caller on each connection calls in a closed loop.
//
//   warpcall_transport_bench [--quick] [--benchmarks_md] [--json FILE] ...   --help says the rest
//
// Latencies are a client's, server CPU that of the server's process (workers of several GPUs not
// counted). No exit status depends on timings: 1 says that a call failed or an answer was wrong.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/client.h"
#include "kernels/common/status_macros.h"
#include "tests/bench/transport_bars.h"
#include "tests/bench/transport_caller.h"
#include "tests/bench/transport_echo.h"
#include "tests/bench/transport_measure.h"
#include "tests/bench/transport_options.h"
#include "tests/bench/transport_server.h"
#include "tests/bench/transport_stripe.h"
#include "tests/bench/transport_table.h"

namespace warpcall::bench {
namespace {

constexpr double kMib = 1 << 20;
// What may be resident for a byte on its way: around the protobuf echo four copies of request and
// response, two at each end, and as much again that malloc keeps in the servers whose turn is over.
// With half of this, 8 x 256 MiB ran a machine of 23 GiB out of memory.
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

class TransportBench {
 public:
  TransportBench(std::string program, TransportOptions options)
      : program_(std::move(program)), options_(std::move(options)) {}

  absl::Status Run();

 private:
  absl::Status StartServers();
  absl::Status FindDevice();
  absl::Status MeasureAll();
  absl::Status MeasurePoint(const Point& point);
  // "" when the point can be measured.
  std::string SkipReason(const Point& point) const;
  absl::Status JudgeAll();
  absl::Status WriteJson() const;

  const std::string program_;  // this one, for echoes
  const TransportOptions options_;
  std::vector<char> data_;
  double in_flight_mib_max_ = 0;
  SocketFolder folder_;
  std::map<ContenderKind, std::unique_ptr<BenchServer>> echoes_;
  std::unique_ptr<BenchServer> warpcalld_;
  std::string device_;  // that warpcalld chose
  bool on_gpu_ = false;
  Results results_;
  std::vector<std::string> skipped_;
  std::vector<Bar> bars_;
};

absl::Status TransportBench::Run() {
  data_ = RandomFloats(*std::max_element(options_.sizes.begin(), options_.sizes.end()));
  in_flight_mib_max_ = std::min(static_cast<double>(options_.in_flight_mib),
                                AvailableMib() / kResidentPerByteOnItsWay);
  RETURN_IF_ERROR(StartServers());
  RETURN_IF_ERROR(FindDevice());
  std::printf("warpcalld on %s, %u cores, %g s of each contender at each point\n\n",
              device_.c_str(), std::thread::hardware_concurrency(), options_.seconds);
  RETURN_IF_ERROR(MeasureAll());
  RETURN_IF_ERROR(JudgeAll());
  RETURN_IF_ERROR(WriteJson());
  return warpcalld_->Stop();
}

absl::Status TransportBench::StartServers() {
  const std::pair<ContenderKind, const char*> kEchoes[] = {
      {ContenderKind::kEcho, "raw"},
      {ContenderKind::kEchoDefaults, "defaults"},
      {ContenderKind::kEchoQueues, "queues"},
      {ContenderKind::kProtobuf, "protobuf"}};
  for (const auto& [kind, name] : kEchoes) {
    ASSIGN_OR_RETURN(echoes_[kind],
                     BenchServer::Start({program_, "--serve_echo", name,
                                         folder_.ListenAddresses(name), options_.echo_arguments}));
  }
  // Room for all that may be on its way, so that no request is refused.
  std::vector<std::string> flags = {absl::StrCat("--staging_mib=", options_.in_flight_mib),
                                    absl::StrCat("--queue_mib=", options_.in_flight_mib)};
  flags.insert(flags.end(), options_.server_flags.begin(), options_.server_flags.end());
  ASSIGN_OR_RETURN(warpcalld_, StartWarpcalld(folder_, {options_.warpcalld, flags}));
  return absl::OkStatus();
}

absl::Status TransportBench::FindDevice() {
  client::Client client(warpcalld_->address(Transport::kTcp));
  absl::StatusOr<client::Result> result =
      client.Gelu(client::Tensor::FromFloats({1}, {0.5f}), "tanh", {.device = options_.device});
  if (!result.ok()) return result.status();
  device_ = result->device;
  on_gpu_ = absl::StartsWith(device_, "cuda");
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

absl::Status TransportBench::MeasurePoint(const Point& point) {
  std::vector<Seat> seats;
  for (const Contender& contender : options_.contenders) {
    const auto echo = echoes_.find(contender.kind);
    seats.push_back({contender, echo == echoes_.end() ? warpcalld_.get() : echo->second.get()});
  }
  std::vector<Figures> figures;
  ASSIGN_OR_RETURN(figures, Measure(seats, {.point = point,
                                            .seconds = options_.seconds,
                                            .device = options_.device,
                                            .data = data_}));
  for (size_t i = 0; i < seats.size(); ++i) results_.Add({point, seats[i].contender, figures[i]});
  return absl::OkStatus();
}

absl::Status TransportBench::MeasureAll() {
  if (!options_.benchmarks_md) std::printf("%s", TableHeading().c_str());
  for (Transport transport : options_.transports) {
    for (int connections : options_.connections) {
      // For a Unix socket BENCHMARKS.md has one connection's small requests only.
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
  for (const std::string& reason : skipped_) std::printf("\n%s\n", reason.c_str());
  return absl::OkStatus();
}

absl::Status TransportBench::JudgeAll() {
  bars_ = JudgeBars(results_, on_gpu_);
  const bool wanted =
      data_.size() >= kStripedBytes &&
      std::count(options_.kernels.begin(), options_.kernels.end(), "gelu") > 0 &&
      std::count(options_.transports.begin(), options_.transports.end(), Transport::kTcp) > 0;
  if (wanted) {
    Bar bar;
    ASSIGN_OR_RETURN(bar, JudgeStriping({.server = warpcalld_.get(),
                                         .device = options_.device,
                                         .data = data_,
                                         .on_gpu = on_gpu_}));
    bars_.push_back(std::move(bar));
  }
  std::printf("\n%s", BarsText(bars_).c_str());
  return absl::OkStatus();
}

absl::Status TransportBench::WriteJson() const {
  if (options_.json_path.empty()) return absl::OkStatus();
  const nlohmann::json json = {
      {"device", device_},           {"cores", std::thread::hardware_concurrency()},
      {"seconds", options_.seconds}, {"server_flags", options_.server_flags},
      {"rows", ToJson(results_)},    {"skipped", skipped_},
      {"bars", ToJson(bars_)}};
  std::ofstream file(options_.json_path);
  file << json.dump(2) << "\n";
  file.flush();
  if (file.good()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("cannot write ", options_.json_path));
}

int Main(int argc, char** argv) {
  if (argc == 5 && std::strcmp(argv[1], "--serve_echo") == 0)
    ServeEcho({argv[2], argv[3], argv[4]});
  BecomeServerIfAsked(argc, argv);
  TransportOptions options;
  options.warpcalld = DefaultWarpcalld();
  int exit_status = 0;
  if (!ParseOptions(argc, argv, &options, &exit_status)) return exit_status;
  TransportBench bench(OwnProgram(), std::move(options));
  const absl::Status status = bench.Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace warpcall::bench

int main(int argc, char** argv) { return warpcall::bench::Main(argc, argv); }
