#include "kernels/compiled/program.h"

#include "absl/strings/cord.h"

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

}  // namespace warpcall::compiled
