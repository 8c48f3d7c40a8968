#include "client/cpp/calls/stripes.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/codec/codec.h"
#include "proto/common/check.h"

namespace warpcall::client {
namespace {

constexpr char kAxis[] = "axis";
constexpr char kExpression[] = "expression";
constexpr char kTransposeA[] = "transpose_a";
// The contract's; a stripe of a tensor that the server refuses could be one that it takes.
constexpr size_t kRankMax = 8;
// Stripes begin on cache lines and vectors of every device when they can.
constexpr int64_t kStripeAlignmentBytes = 256;

int64_t Product(absl::Span<const int64_t> shape) {
  int64_t product = 1;
  for (const int64_t dimension : shape) product *= dimension;
  return product;
}

// Returns the dimensions of a tensor before its last `kept`. REQUIRES: rank >= kept.
absl::Span<const int64_t> Outer(const Tensor& tensor, size_t kept) {
  WARPCALL_CHECK(kept <= tensor.shape().size(), kept, tensor.shape().size());
  const absl::Span<const int64_t> shape = tensor.shape();
  return shape.first(shape.size() - kept);
}

bool IsOneRow(const Tensor& tensor) { return Product(Outer(tensor, 1)) == 1; }

// A division of a call into independent parts.
struct Division {
  // So many of the last dimensions of every split input stay; those before, the same for all of
  // them, become one, of the parts.
  size_t kept = 0;
  size_t first = 0;  // index of the first split input
  std::vector<bool> shared = {};
};

// True when every input has a rank that the contract allows and as many bytes as its shape.
bool InputsAreWhole(const Call& call) {
  for (const Tensor& input : call.inputs) {
    if (input.shape().empty() || input.shape().size() > kRankMax) return false;
    const absl::StatusOr<int64_t> bytes = ByteCount(input.data_type(), input.shape());
    if (!bytes.ok() || static_cast<size_t>(*bytes) != input.data().size()) return false;
  }
  return !call.inputs.empty();
}

// True when all split inputs have the same outer dimensions as the first: those not kept.
bool SplitInputsFit(const Call& call, const KernelInfo& kernel, const Division& division) {
  // For kBeforeAxis the dimensions behind the axis must be equal as well.
  const size_t kept = kernel.independence == Independence::kBeforeAxis ? 0 : division.kept;
  for (size_t i = division.first; i < call.inputs.size(); ++i) {
    if (division.shared[i]) continue;
    if (call.inputs[i].shape().size() < kept ||
        Outer(call.inputs[i], kept) != Outer(call.inputs[division.first], kept))
      return false;
  }
  return true;
}

// The attribute of the call, given or by default; null when there is none.
const AttributeValue* AttributeOf(const Call& call, const KernelInfo& kernel,
                                  absl::string_view name) {
  if (const auto given = call.attributes.find(std::string(name)); given != call.attributes.end())
    return &given->second;
  for (const AttributeInfo& attribute : kernel.attributes)
    if (attribute.name == name) return &attribute.default_value;
  return nullptr;
}

// The dimension that the attribute names; nothing when there is no such one.
std::optional<size_t> AxisDimension(const Call& call, const KernelInfo& kernel, size_t rank) {
  const AttributeValue* value = AttributeOf(call, kernel, kAxis);
  const int64_t* axis = value == nullptr ? nullptr : std::get_if<int64_t>(value);
  if (axis == nullptr) return std::nullopt;
  const auto signed_rank = static_cast<int64_t>(rank);
  if (*axis < -signed_rank || *axis >= signed_rank) return std::nullopt;
  return static_cast<size_t>(*axis < 0 ? *axis + signed_rank : *axis);
}

// Divides a call of a kBroadcastRows kernel; nullopt when the call is one piece.
std::optional<Division> BroadcastRows(const Call& call, const KernelInfo& kernel) {
  const AttributeValue* value = AttributeOf(call, kernel, kExpression);
  const std::string* text = value == nullptr ? nullptr : std::get_if<std::string>(value);
  if (text == nullptr || absl::StrContains(*text, "dropout")) return std::nullopt;
  Division division{.kept = 1};
  size_t rank = 0;
  for (const Tensor& input : call.inputs) {
    division.shared.push_back(IsOneRow(input));
    rank = std::max(rank, input.shape().size());
  }
  while (division.first < call.inputs.size() && division.shared[division.first]) ++division.first;
  // With more dimensions than the split ones, one row gives the output as many.
  if (division.first == call.inputs.size() || call.inputs[division.first].shape().size() != rank)
    return std::nullopt;
  return division;
}

// Divides a call of a kProductRows kernel; nullopt when the call is one piece.
std::optional<Division> ProductRows(const Call& call, const KernelInfo& kernel) {
  const AttributeValue* value = AttributeOf(call, kernel, kTransposeA);
  const bool* transposed = value == nullptr ? nullptr : std::get_if<bool>(value);
  if (transposed == nullptr || call.inputs.size() != 2) return std::nullopt;
  const size_t rank = call.inputs[1].shape().size();
  if (rank == 2 && !*transposed) return Division{.kept = 1, .shared = {false, true}};
  if (rank < 3) return std::nullopt;
  return Division{.kept = 2, .shared = {false, false}};
}

// Nothing when the call is one piece, or not one that the kernel can mean.
std::optional<Division> DivisionOf(const Call& call, const KernelInfo& kernel) {
  if (!InputsAreWhole(call)) return std::nullopt;
  const size_t rank = call.inputs.front().shape().size();
  std::optional<Division> division = Division{.kept = 0};
  switch (kernel.independence) {
    case Independence::kNone:
      return std::nullopt;
    case Independence::kElements:
      break;
    case Independence::kBeforeAxis: {
      const std::optional<size_t> axis = AxisDimension(call, kernel, rank);
      if (!axis.has_value()) return std::nullopt;
      division->kept = rank - *axis;
      break;
    }
    case Independence::kRows:
      division->kept = 1;
      break;
    case Independence::kBroadcastRows:
      division = BroadcastRows(call, kernel);
      break;
    case Independence::kProductRows:
      division = ProductRows(call, kernel);
      break;
  }
  if (!division.has_value()) return std::nullopt;
  for (size_t i = division->shared.size(); i < call.inputs.size(); ++i)
    division->shared.push_back(i < kernel.input_roles.size() &&
                               kernel.input_roles[i] == OperandRole::kShared);
  if (division->shared[division->first] || !SplitInputsFit(call, kernel, *division))
    return std::nullopt;
  return division;
}

// The dimensions of a part of the first split input.
std::vector<int64_t> PartShape(const Call& call, const KernelInfo& kernel,
                               const Division& division) {
  const absl::Span<const int64_t> shape = call.inputs[division.first].shape();
  const absl::Span<const int64_t> kept = shape.subspan(shape.size() - division.kept);
  if (kernel.independence != Independence::kBeforeAxis) return {kept.begin(), kept.end()};
  std::vector<int64_t> part = {kept[0]};
  if (const int64_t inner = Product(kept.subspan(1)); inner > 1) part.push_back(inner);
  return part;
}

int64_t InputBytes(const Call& call) {
  int64_t bytes = 0;
  for (const Tensor& input : call.inputs) bytes += static_cast<int64_t>(input.data().size());
  return bytes;
}

int64_t SharedBytes(const Call& call, const Division& division) {
  int64_t bytes = 0;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    if (division.shared[i]) bytes += static_cast<int64_t>(call.inputs[i].data().size());
  return bytes;
}

// The least number of parts, of `count`, that are a multiple of kStripeAlignmentBytes in every
// split input.
int64_t AlignedParts(const Call& call, const Division& division, int64_t count) {
  int64_t parts = 1;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (division.shared[i]) continue;
    const int64_t part_bytes = static_cast<int64_t>(call.inputs[i].data().size()) / count;
    parts = std::lcm(parts, kStripeAlignmentBytes / std::gcd(kStripeAlignmentBytes, part_bytes));
  }
  return parts;
}

// A tensor's last dimension by itself.
Tensor RowOf(const Tensor& input) {
  return Tensor(input.data_type(), {input.shape().back()}, input.data(), input.owner());
}

}  // namespace

bool LargeEnoughToStripe(const Call& call) {
  const bool has_resident = std::any_of(call.inputs.begin(), call.inputs.end(),
                                        [](const Tensor& input) { return input.is_resident(); });
  return !has_resident && !call.options.keep_outputs && InputBytes(call) >= 2 * kStripeBytesMin;
}

std::vector<Stripe> PlanStripes(const Call& call, const KernelInfo& kernel, int stripes_max) {
  const std::optional<Division> division = DivisionOf(call, kernel);
  if (!division.has_value()) return {};
  const int64_t parts = Product(Outer(call.inputs[division->first], division->kept));
  // Every stripe carries all shared inputs.
  const int64_t shared_bytes = SharedBytes(call, *division);
  const int64_t split_bytes = InputBytes(call) - shared_bytes;
  const int64_t stripes = std::min(
      {int64_t{stripes_max}, split_bytes / std::max(kStripeBytesMin, shared_bytes), parts});
  if (stripes < 2) return {};

  const std::vector<int64_t> part_shape = PartShape(call, kernel, *division);
  const int64_t part_elements = Product(part_shape);
  int64_t unit = AlignedParts(call, *division, parts);
  if (parts / unit < stripes) unit = 1;
  const int64_t units = parts / unit;
  std::vector<Stripe> plan;
  int64_t begin = 0;
  for (int64_t i = 1; i <= stripes; ++i) {
    // Whole units, spread evenly; the last stripe has what is left over as well. Products stay
    // below 64 connections x the elements in memory.
    const int64_t end = i == stripes ? parts : units * i / stripes * unit;
    Stripe stripe{.begin_part = begin,
                  .begin_element = begin * part_elements,
                  .elements = (end - begin) * part_elements,
                  .shape = {end - begin}};
    stripe.shape.insert(stripe.shape.end(), part_shape.begin(), part_shape.end());
    plan.push_back(std::move(stripe));
    begin = end;
  }
  return plan;
}

Call StripeCall(const Call& call, const KernelInfo& kernel, const Stripe& stripe) {
  const std::optional<Division> found = DivisionOf(call, kernel);
  WARPCALL_CHECK(found.has_value() && !stripe.shape.empty(), call.kernel);
  const Division& division = *found;
  Call part{.kernel = call.kernel, .attributes = call.attributes, .options = call.options};
  if (kernel.independence == Independence::kBeforeAxis) part.attributes[kAxis] = int64_t{1};
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const Tensor& input = call.inputs[i];
    if (division.shared[i]) {
      // One row of more dimensions than the split inputs' two would give the output as many.
      part.inputs.push_back(kernel.independence == Independence::kBroadcastRows ? RowOf(input)
                                                                                : input);
      continue;
    }
    std::vector<int64_t> shape = stripe.shape;
    if (kernel.independence != Independence::kBeforeAxis)
      std::copy_n(input.shape().end() - division.kept, division.kept, shape.begin() + 1);
    const auto parts = static_cast<size_t>(shape[0]);
    const size_t bytes = static_cast<size_t>(Product(shape)) * ElementBytes(input.data_type());
    WARPCALL_CHECK(
        parts > 0 && (static_cast<size_t>(stripe.begin_part) + parts) * (bytes / parts) <=
                         input.data().size(),
        stripe.begin_part, parts, input.data().size());
    const auto data =
        input.data().subspan(static_cast<size_t>(stripe.begin_part) * (bytes / parts), bytes);
    part.inputs.emplace_back(input.data_type(), std::move(shape), data, input.owner());
  }
  return part;
}

absl::StatusOr<OutputPlace> PlaceOutput(const Call& call, const KernelInfo& kernel,
                                        const Stripe& stripe, const std::vector<int64_t>& shape) {
  const std::optional<Division> found = DivisionOf(call, kernel);
  WARPCALL_CHECK(found.has_value() && !stripe.shape.empty(), call.kernel);
  const Division& division = *found;
  const bool same = kernel.independence == Independence::kElements ||
                    kernel.independence == Independence::kBeforeAxis;
  const bool fits =
      same ? shape == stripe.shape
           : shape.size() == stripe.shape.size() && shape.front() == stripe.shape.front();
  if (!fits)
    return BadResponse(absl::StrCat("an output of shape (", absl::StrJoin(shape, ", "),
                                    ") for inputs of shape (", absl::StrJoin(stripe.shape, ", "),
                                    "), though ", call.kernel, " is said to keep ",
                                    same ? "it" : "its rows"));
  const Tensor& first = call.inputs[division.first];
  if (same)
    return OutputPlace{.whole_shape = {first.shape().begin(), first.shape().end()},
                       .begin_element = stripe.begin_element};
  const absl::Span<const int64_t> outer = Outer(first, division.kept);
  OutputPlace place{.whole_shape = {outer.begin(), outer.end()}};
  place.whole_shape.insert(place.whole_shape.end(), shape.begin() + 1, shape.end());
  // Checks that no product of the whole output's dimensions overflows.
  if (const auto bytes = ByteCount(DataType::kFloat32, place.whole_shape); !bytes.ok())
    return BadResponse(bytes.status().message());
  place.begin_element = stripe.begin_part * Product(absl::MakeConstSpan(shape).subspan(1));
  return place;
}

}  // namespace warpcall::client
