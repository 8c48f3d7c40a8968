#include "client/cpp/calls/stripes.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace warpcall::client {
namespace {

constexpr char kAxis[] = "axis";
// The contract's; a stripe of a tensor that the server refuses could be one that it takes.
constexpr size_t kRankMax = 8;
// Stripes begin on cache lines and vectors of every device when they can.
constexpr int64_t kStripeAlignmentBytes = 256;

// Any problem with independent parts: `count` parts, each the elements of one index of a tensor of
// shape [count, part...].
struct Parts {
  int64_t count = 0;
  std::vector<int64_t> part = {};
};

int64_t Product(absl::Span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

// True when all inputs have one shape, a rank that the contract allows and as many bytes as that.
bool InputsFit(const Call& call) {
  if (call.inputs.empty()) return false;
  const absl::Span<const int64_t> shape = call.inputs.front().shape();
  if (shape.empty() || shape.size() > kRankMax) return false;
  for (const Tensor& input : call.inputs) {
    if (input.shape() != shape) return false;
    const absl::StatusOr<int64_t> bytes = ByteCount(input.data_type(), shape);
    if (!bytes.ok() || static_cast<size_t>(*bytes) != input.data().size()) return false;
  }
  return true;
}

// The dimension that the attribute names, given or by default; nothing when there is no such one.
std::optional<size_t> AxisDimension(const Call& call, const KernelInfo& kernel, size_t rank) {
  const AttributeValue* value = nullptr;
  for (const AttributeInfo& attribute : kernel.attributes)
    if (attribute.name == kAxis) value = &attribute.default_value;
  if (const auto given = call.attributes.find(kAxis); given != call.attributes.end())
    value = &given->second;
  const int64_t* axis = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  if (axis == nullptr) return std::nullopt;
  const auto signed_rank = static_cast<int64_t>(rank);
  if (*axis < -signed_rank || *axis >= signed_rank) return std::nullopt;
  return static_cast<size_t>(*axis < 0 ? *axis + signed_rank : *axis);
}

std::optional<Parts> PartsOf(const Call& call, const KernelInfo& kernel) {
  if (!InputsFit(call)) return std::nullopt;
  const absl::Span<const int64_t> shape = call.inputs.front().shape();
  switch (kernel.independence) {
    case Independence::kNone:
      return std::nullopt;
    case Independence::kElements:
      return Parts{.count = Product(shape)};
    case Independence::kBeforeAxis: {
      const std::optional<size_t> axis = AxisDimension(call, kernel, shape.size());
      if (!axis.has_value()) return std::nullopt;
      Parts parts{.count = Product(shape.first(*axis)), .part = {shape[*axis]}};
      if (const int64_t inner = Product(shape.subspan(*axis + 1)); inner > 1)
        parts.part.push_back(inner);
      return parts;
    }
  }
  return std::nullopt;
}

int64_t InputBytes(const Call& call) {
  int64_t bytes = 0;
  for (const Tensor& input : call.inputs) bytes += static_cast<int64_t>(input.data().size());
  return bytes;
}

// The least number of parts that are a multiple of kStripeAlignmentBytes in every input.
int64_t AlignedParts(const Call& call, int64_t part_elements) {
  int64_t parts = 1;
  for (const Tensor& input : call.inputs) {
    const int64_t part_bytes =
        part_elements * static_cast<int64_t>(ElementBytes(input.data_type()));
    parts = std::lcm(parts, kStripeAlignmentBytes / std::gcd(kStripeAlignmentBytes, part_bytes));
  }
  return parts;
}

}  // namespace

bool LargeEnoughToStripe(const Call& call) { return InputBytes(call) >= 2 * kStripeBytesMin; }

std::vector<Stripe> PlanStripes(const Call& call, const KernelInfo& kernel, int stripes_max) {
  const std::optional<Parts> parts = PartsOf(call, kernel);
  if (!parts.has_value()) return {};
  const int64_t stripes =
      std::min({int64_t{stripes_max}, InputBytes(call) / kStripeBytesMin, parts->count});
  if (stripes < 2) return {};

  const int64_t part_elements = Product(parts->part);
  int64_t unit = AlignedParts(call, part_elements);
  if (parts->count / unit < stripes) unit = 1;
  const int64_t units = parts->count / unit;
  std::vector<Stripe> plan;
  int64_t begin = 0;
  for (int64_t i = 1; i <= stripes; ++i) {
    // Whole units, spread evenly; the last stripe has what is left over as well. Products stay
    // below 64 connections x the elements in memory.
    const int64_t end = i == stripes ? parts->count : units * i / stripes * unit;
    Stripe stripe{.begin_element = begin * part_elements,
                  .elements = (end - begin) * part_elements,
                  .shape = {end - begin}};
    stripe.shape.insert(stripe.shape.end(), parts->part.begin(), parts->part.end());
    plan.push_back(std::move(stripe));
    begin = end;
  }
  return plan;
}

Call StripeCall(const Call& call, const KernelInfo& kernel, const Stripe& stripe) {
  Call part{.kernel = call.kernel, .attributes = call.attributes, .options = call.options};
  if (kernel.independence == Independence::kBeforeAxis) part.attributes[kAxis] = int64_t{1};
  for (const Tensor& input : call.inputs) {
    const size_t element_bytes = ElementBytes(input.data_type());
    const auto data =
        input.data().subspan(static_cast<size_t>(stripe.begin_element) * element_bytes,
                             static_cast<size_t>(stripe.elements) * element_bytes);
    part.inputs.emplace_back(input.data_type(), stripe.shape, data, input.owner());
  }
  return part;
}

}  // namespace warpcall::client
