#include "client/cli/common/shape_advice.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/cli/common/shape_sweep.h"

namespace warpcall::cli {
namespace {

// For a better message nobody waits longer.
constexpr absl::Duration kAskTimeout = absl::Seconds(2);

}  // namespace

absl::Status WithShapes(const absl::Status& refusal, const std::string& kernel,
                        client::Client* client) {
  const absl::Time end = absl::Now() + kAskTimeout;
  for (const ShapePoint& guess : ShapeGuesses(refusal)) {
    client::DescribeCall call{.kernel = kernel, .timeout = end - absl::Now()};
    for (const Shape& shape : guess.shapes) call.inputs.push_back({DataType::kFloat32, shape});
    if (call.timeout <= absl::ZeroDuration()) break;
    const absl::Status fits = client->Describe(call).status();
    if (fits.ok())
      return absl::Status(refusal.code(), absl::StrCat(refusal.message(), ", as ", guess.text));
    if (!absl::IsInvalidArgument(fits)) break;  // the server does not say
  }
  return refusal;
}

}  // namespace warpcall::cli
