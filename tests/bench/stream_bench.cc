// Sends a tensor larger than any message through ExecuteStream, from and to callbacks. Measures its
// speed, and the server's memory above the memory at its start.
//
//   stream_bench [GIB]       default 4
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "kernels/common/saturate.h"
#include "proto/common/status_macros.h"
#include "tests/e2e/server_process.h"
#include "warpcall/client.h"

namespace warpcall::bench {
namespace {

constexpr int64_t kResidentBytesMax = int64_t{512} << 20;

// The tensor: a value for each position, without a period that fits chunks.
float ValueAt(int64_t element) { return static_cast<float>(element % 10'007) * 0.001f - 5; }

float Expected(const std::string& kernel, float x) {
  if (kernel == "identity") return x;
  const double u = std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return static_cast<float>(0.5 * x * (1 + std::tanh(u)));
}

// Counts the received bytes, and compares them with the expected ones.
class Receiver {
 public:
  explicit Receiver(std::string kernel) : kernel_(std::move(kernel)) {}

  absl::Status Take(int64_t offset, absl::Span<const char> bytes) {
    bytes_ += static_cast<int64_t>(bytes.size());
    // Every element of identity would cost more than the transfer: a prime's multiples.
    constexpr int64_t kStep = 1021;
    const int64_t first = (CeilDivide(offset, 4) + kStep - 1) / kStep * kStep;  // pieces may be odd
    for (int64_t at = first; (at + 1) * 4 <= offset + static_cast<int64_t>(bytes.size());
         at += kStep) {
      float value;
      std::memcpy(&value, bytes.data() + (at * 4 - offset), sizeof(value));
      const float expected = Expected(kernel_, ValueAt(at));
      if (std::abs(value - expected) > 2e-6f * (1 + std::abs(expected)))
        return absl::DataLossError(
            absl::StrCat("element ", at, " is ", value, " instead of ", expected));
    }
    return absl::OkStatus();
  }

  int64_t bytes() const { return bytes_; }

 private:
  const std::string kernel_;
  int64_t bytes_ = 0;
};

absl::Status Measure(const std::string& kernel, int64_t bytes) {
  testing::ServerProcess server({"--log_level=warning"});
  server.AwaitRows();
  client::Client client(server.address());
  const auto small = client.Gelu(client::Tensor::FromFloats({4}, {1, 2, 3, 4}));
  RETURN_IF_ERROR(small.status());
  const int64_t before = server.ResidentBytes();
  Receiver receiver(kernel);
  client::StreamCall call;
  call.kernel = kernel;
  call.inputs = {{DataType::kFloat32, {bytes / 4}}};
  call.read = [](size_t, int64_t offset, absl::Span<char> into) {
    const int64_t first = offset / 4;
    for (size_t i = 0; i < into.size() / 4; ++i) {
      const float value = ValueAt(first + static_cast<int64_t>(i));
      std::memcpy(into.data() + 4 * i, &value, sizeof(value));
    }
    return absl::OkStatus();
  };
  call.write = [&](size_t, int64_t offset, absl::Span<const char> data) {
    return receiver.Take(offset, data);
  };
  const auto result = client.ExecuteStream(call);
  RETURN_IF_ERROR(result.status());
  if (receiver.bytes() != bytes)
    return absl::DataLossError(absl::StrCat(receiver.bytes(), " bytes came of ", bytes));
  const int64_t grown = server.PeakResidentBytes() - before;
  const double seconds = absl::ToDoubleSeconds(result->wall);
  std::printf("| %s on %s | %.1f | %.2f | %.2f | %lld | %s |\n", kernel.c_str(),
              result->device.c_str(), static_cast<double>(bytes) / (1 << 30), seconds,
              static_cast<double>(bytes) / seconds / 1e9, static_cast<long long>(grown >> 20),
              grown <= kResidentBytesMax ? "yes" : "NO");
  std::fflush(stdout);
  if (const int status = server.Stop(); status != 0)
    return absl::InternalError(
        absl::StrCat("the server ended with status ", status, ": ", server.log()));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  const double gib = argc > 1 ? std::atof(argv[1]) : 4;
  const int64_t bytes = static_cast<int64_t>(gib * (1 << 30)) / 4 * 4;
  std::printf(
      "| kernel | GiB | s | GB/s each way | MiB resident above the start | at most %lld |\n",
      static_cast<long long>(kResidentBytesMax >> 20));
  std::printf("|---|---|---|---|---|---|\n");
  for (const char* kernel : {"identity", "gelu"}) {
    if (absl::Status status = Measure(kernel, bytes); !status.ok()) {
      std::fprintf(stderr, "%s: %s\n", kernel, status.ToString().c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace warpcall::bench

int main(int argc, char** argv) { return warpcall::bench::Main(argc, argv); }
