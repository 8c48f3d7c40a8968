#include "kernels/compiled/program.h"

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace warpcall::compiled {
namespace {

constexpr char kPayloadUrl[] = "warpcall/compile-error";

}  // namespace

absl::Status AsCompileError(absl::Status status) {
  status.SetPayload(kPayloadUrl, absl::Cord());
  return status;
}

bool IsCompileError(const absl::Status& status) {
  return status.GetPayload(kPayloadUrl).has_value();
}

std::string ClippedLog(absl::string_view log, size_t bytes_max) {
  log = absl::StripSuffix(log, "\n");
  if (log.size() <= bytes_max) return std::string(log);
  return absl::StrCat(log.substr(0, bytes_max), "... (", log.size() - bytes_max, " bytes more)");
}

}  // namespace warpcall::compiled
