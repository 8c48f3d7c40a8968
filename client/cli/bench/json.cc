#include <nlohmann/json.hpp>
#include <utility>

#include "client/cli/bench/report.h"
#include "client/cli/common/output.h"
#include "client/cli/common/tensor_text.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

json ToJson(const client::BenchmarkResult& result) {
  return {{"implementation", result.implementation},
          {"family", result.family},
          {"mean_ns", result.mean_ns},
          {"median_ns", result.median_ns},
          {"min_ns", result.min_ns},
          {"p90_ns", result.p90_ns},
          {"bytes_per_second", result.bytes_per_second},
          {"flops_per_second", result.flops_per_second},
          {"fraction_of_ceiling", result.fraction_of_ceiling},
          {"relative_error", result.relative_error},
          {"checked_elements", result.checked_elements},
          {"iterations", result.iterations},
          {"launches_per_iteration", result.launches_per_iteration},
          {"launch", cli::ToJson(result.launch)},
          {"error", result.error}};
}

json ToJson(const BenchPoint& point) {
  json inputs = json::array();
  for (const client::TensorSpec& input : point.call.inputs)
    inputs.push_back({{"data_type", DataTypeName(input.data_type)}, {"shape", input.shape}});
  json value = {{"shape", point.shape},
                {"data_type", DataTypeOption(point.data_type)},
                {"inputs", std::move(inputs)},
                {"device", point.device()},
                {"error", nullptr},
                {"ceiling_bytes_per_second", nullptr},
                {"results", json::array()}};
  if (!point.report.ok()) {
    value["error"] = {{"code", absl::StatusCodeToString(point.report.status().code())},
                      {"message", std::string(point.report.status().message())}};
    return value;
  }
  value["ceiling_bytes_per_second"] = point.report->ceiling_bytes_per_second;
  for (const client::BenchmarkResult& result : point.report->results)
    value["results"].push_back(ToJson(result));
  return value;
}

json OrNull(int64_t value) { return value > 0 ? json(value) : json(); }

}  // namespace

json ToJson(const BenchReport& report) {
  json attributes = json::object();
  for (const auto& [name, value] : report.attributes) attributes[name] = ToJson(value);
  json points = json::array();
  for (const BenchPoint& point : report.points) points.push_back(ToJson(point));
  const client::BenchmarkCall& call = report.points[0].call;
  return {{"kernel", report.kernel},
          {"attributes", std::move(attributes)},
          {"iterations", OrNull(call.iterations)},
          {"warmup_iterations", OrNull(call.warmup_iterations)},
          {"seed", call.seed},
          {"points", std::move(points)}};
}

}  // namespace warpcall::cli
