#include "client/cpp/calls/stripes.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/codec/codec.h"

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

bool IsShared(const KernelInfo& kernel, size_t input) {
  return input < kernel.input_roles.size() && kernel.input_roles[input] == OperandRole::kShared;
}

// Those dimensions of a split input that it has in common with all others.
absl::Span<const int64_t> CommonDimensions(const Tensor& input, const KernelInfo& kernel) {
  const absl::Span<const int64_t> shape = input.shape();
  return kernel.independence == Independence::kRows ? shape.first(shape.size() - 1) : shape;
}

// True when every input has a rank that the contract allows and as many bytes as its shape, and
// split ones fit the first.
bool InputsFit(const Call& call, const KernelInfo& kernel) {
  if (call.inputs.empty() || IsShared(kernel, 0)) return false;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& input = call.inputs[i];
    const absl::Span<const int64_t> shape = input.shape();
    if (shape.empty() || shape.size() > kRankMax) return false;
    const absl::StatusOr<int64_t> bytes = ByteCount(input.data_type(), shape);
    if (!bytes.ok() || static_cast<size_t>(*bytes) != input.data().size()) return false;
    if (IsShared(kernel, i)) continue;
    if (CommonDimensions(input, kernel) != CommonDimensions(call.inputs.front(), kernel))
      return false;
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
  if (!InputsFit(call, kernel)) return std::nullopt;
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
    case Independence::kRows:
      return Parts{.count = Product(shape.first(shape.size() - 1)), .part = {shape.back()}};
  }
  return std::nullopt;
}

int64_t InputBytes(const Call& call) {
  int64_t bytes = 0;
  for (const Tensor& input : call.inputs) bytes += static_cast<int64_t>(input.data().size());
  return bytes;
}

int64_t SharedBytes(const Call& call, const KernelInfo& kernel) {
  int64_t bytes = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (IsShared(kernel, i)) bytes += static_cast<int64_t>(call.inputs[i].data().size());
  return bytes;
}

// The least number of parts, of `count`, that are a multiple of kStripeAlignmentBytes in every
// split input.
int64_t AlignedParts(const Call& call, const KernelInfo& kernel, int64_t count) {
  int64_t parts = 1;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (IsShared(kernel, i)) continue;
    const int64_t part_bytes = static_cast<int64_t>(call.inputs[i].data().size()) / count;
    parts = std::lcm(parts, kStripeAlignmentBytes / std::gcd(kStripeAlignmentBytes, part_bytes));
  }
  return parts;
}

}  // namespace

bool LargeEnoughToStripe(const Call& call) { return InputBytes(call) >= 2 * kStripeBytesMin; }

std::vector<Stripe> PlanStripes(const Call& call, const KernelInfo& kernel, int stripes_max) {
  const std::optional<Parts> parts = PartsOf(call, kernel);
  if (!parts.has_value()) return {};
  // What is shared goes with every stripe.
  const int64_t shared_bytes = SharedBytes(call, kernel);
  const int64_t split_bytes = InputBytes(call) - shared_bytes;
  const int64_t stripes = std::min(
      {int64_t{stripes_max}, split_bytes / std::max(kStripeBytesMin, shared_bytes), parts->count});
  if (stripes < 2) return {};

  const int64_t part_elements = Product(parts->part);
  int64_t unit = AlignedParts(call, kernel, parts->count);
  if (parts->count / unit < stripes) unit = 1;
  const int64_t units = parts->count / unit;
  std::vector<Stripe> plan;
  int64_t begin = 0;
  for (int64_t i = 1; i <= stripes; ++i) {
    // Whole units, spread evenly; the last stripe has what is left over as well. Products stay
    // below 64 connections x the elements in memory.
    const int64_t end = i == stripes ? parts->count : units * i / stripes * unit;
    Stripe stripe{.begin_part = begin,
                  .begin_element = begin * part_elements,
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
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& input = call.inputs[i];
    if (IsShared(kernel, i)) {
      part.inputs.push_back(input);
      continue;
    }
    std::vector<int64_t> shape = stripe.shape;
    if (kernel.independence == Independence::kRows) shape.back() = input.shape().back();
    const auto parts = static_cast<size_t>(shape[0]);
    const size_t bytes = static_cast<size_t>(Product(shape)) * ElementBytes(input.data_type());
    const auto data =
        input.data().subspan(static_cast<size_t>(stripe.begin_part) * (bytes / parts), bytes);
    part.inputs.emplace_back(input.data_type(), std::move(shape), data, input.owner());
  }
  return part;
}

absl::StatusOr<OutputPlace> PlaceOutput(const Call& call, const KernelInfo& kernel,
                                        const Stripe& stripe, const std::vector<int64_t>& shape) {
  const bool rows = kernel.independence == Independence::kRows;
  if (rows ? shape.size() != 2 || shape[0] != stripe.shape[0] : shape != stripe.shape)
    return BadResponse(absl::StrCat("an output of shape (", absl::StrJoin(shape, ", "),
                                    ") for inputs of shape (", absl::StrJoin(stripe.shape, ", "),
                                    "), though ", call.kernel, " is said to keep ",
                                    rows ? "its rows" : "it"));
  const absl::Span<const int64_t> whole = call.inputs.front().shape();
  OutputPlace place{.whole_shape = {whole.begin(), whole.end()},
                    .begin_element = stripe.begin_element};
  if (rows) {
    place.whole_shape.back() = shape.back();
    // So that no product of its dimensions overflows.
    if (const auto bytes = ByteCount(DataType::kFloat32, place.whole_shape); !bytes.ok())
      return BadResponse(bytes.status().message());
    place.begin_element = stripe.begin_part * shape.back();
  }
  return place;
}

}  // namespace warpcall::client
