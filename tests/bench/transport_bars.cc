#include "tests/bench/transport_bars.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace warpcall::bench {
namespace {

constexpr size_t kKib = 1024;
constexpr size_t kMib = kKib * kKib;
constexpr double kOfEchoMin = 0.75;
constexpr double kOfProtobufMin = 2.5;
constexpr double kSmallDelayUsMax = 25;
constexpr int kManyConnections = 8;
constexpr double kManySmallOfEchoMin = 0.7;

std::string Where(const std::string& kernel, const Point& point) {
  return absl::StrCat(kernel, ", ", SizeText(point.bytes), ", ", point.connections,
                      point.connections == 1 ? " connection, " : " connections, ",
                      TransportName(point.transport));
}

struct RateBar {
  std::string kernel;
  Point point;
  std::optional<double> other;  // requests/s
  const char* other_name;
  double ratio_min;
};

Bar JudgeRate(const Results& results, const RateBar& rate) {
  Bar bar = {absl::StrFormat("%s: at least %g x %s", Where(rate.kernel, rate.point), rate.ratio_min,
                             rate.other_name)};
  const Figures* own = results.Find(rate.point, {ContenderKind::kRaw, rate.kernel});
  if (own == nullptr || !rate.other.has_value() || *rate.other <= 0) {
    bar.found = "not measured";
    return bar;
  }
  const double ratio = own->requests_per_second / *rate.other;
  bar.met = ratio >= rate.ratio_min;
  bar.found = absl::StrFormat("%.2f", ratio);
  return bar;
}

Bar JudgeDelay(const Results& results, const std::string& kernel, const Point& point) {
  Bar bar = {absl::StrFormat("%s: p50 at most the ByteBuffer echo's + %g us", Where(kernel, point),
                             kSmallDelayUsMax)};
  const Figures* own = results.Find(point, {ContenderKind::kRaw, kernel});
  const std::optional<double> echo_us = results.EchoP50Us(point);
  if (own == nullptr || !echo_us.has_value()) {
    bar.found = "not measured";
    return bar;
  }
  const double delay_us = own->p50_us - *echo_us;
  bar.met = delay_us <= kSmallDelayUsMax;
  bar.found = absl::StrFormat("%+.1f us", delay_us);
  return bar;
}

const char* Verdict(const Bar& bar) {
  if (!bar.met.has_value()) return "-";
  return *bar.met ? "met" : "MISSED";
}

}  // namespace

std::vector<Bar> JudgeBars(const Results& results, bool on_gpu) {
  std::vector<Bar> bars;
  for (size_t bytes : {16 * kMib, 64 * kMib}) {
    const Point point = {Transport::kTcp, 1, bytes};
    const Figures* protobuf = results.Find(point, {ContenderKind::kProtobuf});
    bars.push_back(JudgeRate(results, {"identity", point, results.EchoRequestsPerSecond(point),
                                       "the ByteBuffer echo", kOfEchoMin}));
    bars.push_back(JudgeRate(
        results,
        {"identity", point,
         protobuf == nullptr ? std::nullopt : std::optional<double>(protobuf->requests_per_second),
         "the protobuf echo", kOfProtobufMin}));
  }
  for (size_t bytes : {size_t{64}, 4 * kKib})
    bars.push_back(JudgeDelay(results, "identity", {Transport::kTcp, 1, bytes}));
  if (on_gpu) bars.push_back(JudgeDelay(results, "gelu", {Transport::kTcp, 1, 4 * kKib}));
  const Point many = {Transport::kTcp, kManyConnections, 4 * kKib};
  for (const char* kernel : {"identity", "gelu"}) {
    if (kernel == std::string("gelu") && !on_gpu) continue;
    bars.push_back(JudgeRate(results, {kernel, many, results.EchoRequestsPerSecond(many),
                                       "the ByteBuffer echo", kManySmallOfEchoMin}));
  }
  return bars;
}

std::string BarsText(absl::Span<const Bar> bars) {
  std::string text = "| bar | this run | |\n|---|---|---|\n";
  for (const Bar& bar : bars)
    absl::StrAppend(&text, "| ", bar.text, " | ", bar.found, " | ", Verdict(bar), " |\n");
  return text;
}

nlohmann::json ToJson(absl::Span<const Bar> bars) {
  nlohmann::json json = nlohmann::json::array();
  for (const Bar& bar : bars) {
    nlohmann::json one = {{"bar", bar.text}, {"found", bar.found}};
    if (bar.met.has_value()) one["met"] = *bar.met;
    json.push_back(std::move(one));
  }
  return json;
}

}  // namespace warpcall::bench
