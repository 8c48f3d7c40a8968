#include "tests/bench/transport_stripe.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "client/cpp/client.h"
#include "kernels/common/status_macros.h"
#include "tests/bench/transport_caller.h"

namespace warpcall::bench {
namespace {

constexpr int kConnections = 8;
constexpr double kSpeedupMin = 4;
constexpr int kTurns = 7;

absl::StatusOr<double> TimedSeconds(client::Client* client, const client::Call& call) {
  absl::StatusOr<client::Result> result = client->Execute(call);
  if (!result.ok()) return result.status();
  return absl::ToDoubleSeconds(result->wall);
}

absl::Status Verify(client::Client* client, const client::Call& call) {
  absl::StatusOr<client::Result> result = client->Execute(call);
  if (!result.ok()) return result.status();
  return CheckAnswer(call.kernel, call.inputs[0].data(), result->outputs[0].data());
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + kTurns / 2, values.end());
  return values[kTurns / 2];
}

}  // namespace

absl::StatusOr<Bar> JudgeStriping(const StripeOptions& options) {
  Bar bar = {
      absl::StrFormat("gelu, %s through the client library, %d connections, TCP: at least "
                      "%g x faster than over one",
                      SizeText(kStripedBytes), kConnections, kSpeedupMin)};
  const client::ClientOptions plain = {.timeout = absl::Seconds(kCallTimeoutSeconds)};
  client::ClientOptions several = plain;
  several.connections = kConnections;
  client::Client one(options.server->address(Transport::kTcp), plain);
  client::Client striped(options.server->address(Transport::kTcp), several);
  client::Call call = {.kernel = "gelu"};
  call.options.device = options.device;
  call.inputs = {client::Tensor::Borrow(DataType::kFloat32,
                                        {static_cast<int64_t>(kStripedBytes / sizeof(float))},
                                        options.data.first(kStripedBytes))};
  RETURN_IF_ERROR(Verify(&one, call));
  RETURN_IF_ERROR(Verify(&striped, call));
  std::vector<double> one_seconds(kTurns);
  std::vector<double> striped_seconds(kTurns);
  for (int turn = 0; turn < kTurns; ++turn) {
    ASSIGN_OR_RETURN(one_seconds[turn], TimedSeconds(&one, call));
    ASSIGN_OR_RETURN(striped_seconds[turn], TimedSeconds(&striped, call));
  }
  const double one_median = Median(std::move(one_seconds));
  const double striped_median = Median(std::move(striped_seconds));
  if (options.on_gpu) bar.met = one_median >= kSpeedupMin * striped_median;
  bar.found = absl::StrFormat("%.2f (%.1f ms, %.1f ms)", one_median / striped_median,
                              striped_median * 1e3, one_median * 1e3);
  return bar;
}

}  // namespace warpcall::bench
