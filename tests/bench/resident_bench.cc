// Measures calls with tensors that stay on a device against the same calls with the bytes sent, and
// against a gRPC echo of the bytes that still travel; and the rates of Put and Get against
// ExecuteStream's. The contenders take turns.
//
//   resident_bench [--quick] [DEVICE]     default: the server's choice
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/common/inputs.h"
#include "proto/common/status_macros.h"
#include "tests/bench/transport_caller.h"
#include "tests/bench/transport_echo.h"
#include "tests/e2e/child_process.h"
#include "tests/e2e/server_process.h"
#include "warpcall/client.h"

namespace warpcall::bench {
namespace {

using client::Tensor;

// Contenders take turns in rounds: a server's lanes and a GPU that were idle meanwhile answer their
// first calls late.
constexpr int kRounds = 20;
constexpr int kWarmupCalls = 5;  // of each contender in each round, not counted

struct Sizes {
  int64_t features = 4096;  // of the linear layer, in and out
  std::vector<int64_t> rows = {1, 512};
  int calls = 400;  // of each contender
  int64_t transfer_mib = 512;
  int transfers = 7;
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? 0 : values[values.size() / 2];
}

absl::StatusOr<Tensor> Random(DataType type, std::vector<int64_t> shape) {
  std::mt19937_64 random(1);
  return cli::RandomTensor({type, std::move(shape)}, cli::Distribution::kNormal, &random);
}

class ResidentBench {
 public:
  ResidentBench(Sizes sizes, std::string device)
      : sizes_(std::move(sizes)), device_(std::move(device)) {}

  absl::Status Run() {
    const std::string own_program = std::filesystem::read_symlink("/proc/self/exe").string();
    testing::ChildProcess echo({own_program, "--serve_echo", "127.0.0.1:0"}, "");
    testing::ServerProcess server({"--log_level=warning", "--staging_mib=2048"});
    server.AwaitRows();
    client_ = std::make_unique<client::Client>(server.address());
    std::printf(
        "| linear bfloat16 | echo, us | by handle, us | kernel, us | over echo and kernel, us | "
        "device, us | in the server, us | weights sent, us | its kernel, us |\n"
        "|---|---|---|---|---|---|---|---|---|\n");
    // "echo: serving on ADDRESS"
    const std::string& line = echo.first_line();
    for (const int64_t rows : sizes_.rows)
      RETURN_IF_ERROR(MeasureLinear(rows, line.substr(line.rfind(' ') + 1)));
    RETURN_IF_ERROR(MeasureSmall());
    RETURN_IF_ERROR(MeasureRates());
    const int status = server.Stop();
    if (status == 0) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the server ended with ", status, ": ", server.log()));
  }

 private:
  struct Times {
    std::vector<double> wall_us;
    std::vector<double> kernel_us;
    std::vector<double> device_us;  // with copies
    std::vector<double> server_us;  // from the request's first byte to its answer
    absl::StatusOr<client::Result> last = absl::UnknownError("not called");
  };

  absl::Status Execute(const client::Call& call, Times* times) {
    const absl::Time start = absl::Now();
    times->last = client_->Execute(call);
    times->wall_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
    RETURN_IF_ERROR(times->last.status());
    const client::Timing& timing = times->last->timing;
    const auto us = [](int64_t ns) { return static_cast<double>(ns) / 1e3; };
    times->kernel_us.push_back(us(timing.kernel_ns));
    times->device_us.push_back(us(timing.h2d_ns + timing.kernel_ns + timing.d2h_ns));
    times->server_us.push_back(us(timing.total_ns));
    return absl::OkStatus();
  }

  absl::Status MeasureLinear(int64_t rows, const std::string& echo_address) {
    const int64_t n = sizes_.features;
    ASSIGN_OR_RETURN(const Tensor x, Random(DataType::kBFloat16, {rows, n}));
    ASSIGN_OR_RETURN(const Tensor weight, Random(DataType::kBFloat16, {n, n}));
    ASSIGN_OR_RETURN(const Tensor bias, Random(DataType::kBFloat16, {n}));
    const client::PutOptions put{.device = device_};
    ASSIGN_OR_RETURN(const client::Resident kept_weight, client_->Put(weight, put));
    ASSIGN_OR_RETURN(const client::Resident kept_bias, client_->Put(bias, put));
    client::Call sent{.kernel = "linear", .inputs = {x, weight, bias}};
    sent.options.device = kept_weight.device;
    client::Call kept = sent;
    kept.inputs = {x, kept_weight.tensor, kept_bias.tensor};
    ASSIGN_OR_RETURN(const std::unique_ptr<Caller> echo,
                     NewCaller({.kind = ContenderKind::kEcho,
                                .address = echo_address,
                                .call = {.kernel = "identity", .inputs = {x}}}));
    Times warmup;
    Times echo_times;
    Times kept_times;
    Times sent_times;
    for (int round = 0; round < kRounds; ++round) {
      for (int i = 0; i < kWarmupCalls + sizes_.calls / kRounds; ++i) {
        const absl::Time start = absl::Now();
        RETURN_IF_ERROR(echo->Call());
        if (i >= kWarmupCalls)
          echo_times.wall_us.push_back(absl::ToDoubleMicroseconds(absl::Now() - start));
      }
      for (int i = 0; i < kWarmupCalls + sizes_.calls / kRounds; ++i)
        RETURN_IF_ERROR(Execute(kept, i >= kWarmupCalls ? &kept_times : &warmup));
      RETURN_IF_ERROR(Execute(sent, &sent_times));
    }
    if (sent_times.last->outputs[0].data() != kept_times.last->outputs[0].data())
      return absl::DataLossError("the outputs by handle are not those of the weights sent");
    const double kernel = Median(kept_times.kernel_us);
    const double call = Median(kept_times.wall_us);
    const double bare = Median(echo_times.wall_us);
    std::printf("| %lldx%lldx%lld | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
                static_cast<long long>(rows), static_cast<long long>(n), static_cast<long long>(n),
                bare, call, kernel, call - kernel - bare, Median(kept_times.device_us),
                Median(kept_times.server_us), Median(sent_times.wall_us),
                Median(sent_times.kernel_us));
    const std::string handles[] = {kept_weight.tensor.handle(), kept_bias.tensor.handle()};
    return client_->Free(handles).status();
  }

  // The host's cost of an operand that stays, where bytes cost nothing.
  absl::Status MeasureSmall() {
    ASSIGN_OR_RETURN(const Tensor x, Random(DataType::kFloat32, {64}));
    ASSIGN_OR_RETURN(const client::Resident kept_x, client_->Put(x, {.device = device_}));
    client::Call sent{.kernel = "gelu", .inputs = {x}};
    sent.options.device = kept_x.device;
    client::Call kept = sent;
    kept.inputs = {kept_x.tensor};
    Times sent_times;
    Times kept_times;
    for (int i = 0; i < 10 * sizes_.calls; ++i) {
      RETURN_IF_ERROR(Execute(sent, &sent_times));
      RETURN_IF_ERROR(Execute(kept, &kept_times));
    }
    std::printf("\ngelu of 64 float32 on %s: sent %.1f us, by handle %.1f us\n",
                kept_x.device.c_str(), Median(sent_times.wall_us), Median(kept_times.wall_us));
    const std::string handles[] = {kept_x.tensor.handle()};
    return client_->Free(handles).status();
  }

  absl::Status MeasureRates() {
    const int64_t bytes = sizes_.transfer_mib << 20;
    ASSIGN_OR_RETURN(const Tensor x, Random(DataType::kFloat32, {bytes / 4}));
    client::Call stream{.kernel = "identity", .inputs = {x}};
    stream.options.device = device_;
    std::vector<double> put_rates;
    std::vector<double> get_rates;
    std::vector<double> stream_rates;
    const auto rate = [&](absl::Time start) {
      return static_cast<double>(bytes) / absl::ToDoubleSeconds(absl::Now() - start) / 1e9;
    };
    for (int i = 0; i < sizes_.transfers; ++i) {
      absl::Time start = absl::Now();
      RETURN_IF_ERROR(client_->ExecuteStream(stream).status());
      stream_rates.push_back(rate(start));
      start = absl::Now();
      ASSIGN_OR_RETURN(const client::Resident kept, client_->Put(x, {.device = device_}));
      put_rates.push_back(rate(start));
      start = absl::Now();
      ASSIGN_OR_RETURN(const Tensor back, client_->Get(kept.tensor.handle()));
      get_rates.push_back(rate(start));
      if (back.data() != x.data()) return absl::DataLossError("Get gave other bytes");
      const std::string handles[] = {kept.tensor.handle()};
      RETURN_IF_ERROR(client_->Free(handles).status());
    }
    const double streamed = Median(stream_rates);
    std::printf(
        "%lld MiB, GB/s: ExecuteStream of identity each way %.2f, Put %.2f (%.2f of it), Get %.2f "
        "(%.2f)\n",
        static_cast<long long>(sizes_.transfer_mib), streamed, Median(put_rates),
        Median(put_rates) / streamed, Median(get_rates), Median(get_rates) / streamed);
    return absl::OkStatus();
  }

  const Sizes sizes_;
  const std::string device_;
  std::unique_ptr<client::Client> client_;
};

int Main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "--serve_echo") == 0) ServeEcho({"echo", argv[2]});
  Sizes sizes;
  std::string device;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) {
      sizes = {.features = 64, .rows = {1}, .calls = 20, .transfer_mib = 20, .transfers = 1};
    } else {
      device = argv[i];
    }
  }
  const absl::Status status = ResidentBench(sizes, device).Run();
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace
}  // namespace warpcall::bench

int main(int argc, char** argv) { return warpcall::bench::Main(argc, argv); }
