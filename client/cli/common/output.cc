#include "client/cli/common/output.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/cli/common/command.h"

namespace warpcall::cli {

using nlohmann::json;

void PrintJson(const json& value) {
  constexpr int kIndent = 2;
  const std::string text =
      value.dump(kIndent, ' ', /*ensure_ascii=*/false, json::error_handler_t::replace);
  std::printf("%s\n", text.c_str());
}

json ToJson(const client::AttributeValue& value) {
  return std::visit([](const auto& v) { return json(v); }, value);
}

json ToJson(const client::Timing& timing) {
  return {{"queue_ns", timing.queue_ns}, {"copy_in_ns", timing.copy_in_ns},
          {"h2d_ns", timing.h2d_ns},     {"kernel_ns", timing.kernel_ns},
          {"d2h_ns", timing.d2h_ns},     {"total_ns", timing.total_ns}};
}

json ToJson(const client::LaunchInfo& launch) {
  return {{"bytes_moved", launch.bytes_moved},
          {"flops", launch.flops},
          {"theoretical_occupancy", launch.theoretical_occupancy},
          {"waves", launch.waves},
          {"gpu_kernels", launch.gpu_kernels}};
}

namespace {

int PrintError(const absl::Status& status, int exit_status) {
  const std::string text =
      absl::StrCat(absl::StatusCodeToString(status.code()), ": ", status.message(), "\n");
  std::fputs(text.c_str(), stderr);
  return exit_status;
}

}  // namespace

int Refused(const absl::Status& status) { return PrintError(status, kExitRefused); }

int UsageError(const absl::Status& status) { return PrintError(status, kExitUsage); }

}  // namespace warpcall::cli
