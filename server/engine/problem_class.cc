#include "server/engine/problem_class.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <variant>

#include "absl/hash/hash.h"
#include "absl/numeric/bits.h"
#include "absl/types/span.h"
#include "proto/common/check.h"

namespace warpcall {
namespace {

constexpr int64_t kAlignmentBytesMax = 16;
// An attribute that selects the random numbers, not the operation.
constexpr char kSeed[] = "seed";
constexpr char kAxis[] = "axis";

int64_t Product(absl::Span<const int64_t> dims) {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

class Words {
 public:
  explicit Words(ProblemClass* words) : words_(words) {}

  void Add(uint32_t word) { words_->push_back(word); }
  void AddLong(uint64_t value) {
    Add(static_cast<uint32_t>(value));
    Add(static_cast<uint32_t>(value >> 32));
  }
  void AddSizes(absl::Span<const int64_t> sizes) {
    for (const int64_t size : sizes) Add(SizeBucket(size));
  }

 private:
  ProblemClass* const words_;
};

// The largest power of two that divides the bytes of `elements` elements.
uint32_t AlignmentOf(int64_t elements, DataType type) {
  const int64_t bytes = elements * static_cast<int64_t>(ElementBytes(type));
  return static_cast<uint32_t>(std::min(kAlignmentBytesMax, bytes == 0 ? 16 : bytes & -bytes));
}

size_t AxisOf(const Op& op, const Problem& problem) {
  for (size_t i = 0; i < op.attributes.size(); ++i) {
    if (std::strcmp(op.attributes[i].name, kAxis) != 0) continue;
    const int64_t axis = std::get<int64_t>(problem.attributes[i]);
    return static_cast<size_t>(axis < 0 ? axis + static_cast<int64_t>(problem.inputs[0].dims.size())
                                        : axis);
  }
  return 0;
}

// Returns the last `kept` dimensions, after the product of the others.
Dims Kept(const TensorSpec& spec, size_t kept) {
  const absl::Span<const int64_t> dims = spec.dims;
  kept = std::min(kept, dims.size());
  Dims sizes = {Product(dims.first(dims.size() - kept))};
  sizes.insert(sizes.end(), dims.end() - static_cast<std::ptrdiff_t>(kept), dims.end());
  return sizes;
}

Dims AroundAxis(const TensorSpec& spec, size_t axis) {
  WARPCALL_CHECK(axis < spec.dims.size(), axis, spec.dims.size());
  const absl::Span<const int64_t> dims = spec.dims;
  const int64_t behind = Product(dims.subspan(axis + 1));
  Dims sizes = {Product(dims.first(axis)), dims[axis]};
  if (behind != 1) sizes.push_back(behind);
  return sizes;
}

// The parts of an operand's shape that count.
Dims SizesOf(const Op& op, const Problem& problem, const TensorSpec& spec) {
  switch (op.independence) {
    case Independence::kNone:
      return spec.dims;
    case Independence::kElements:
      return {spec.elements()};
    case Independence::kBeforeAxis:
      return AroundAxis(spec, AxisOf(op, problem));
    case Independence::kRows:
    case Independence::kBroadcastRows:
      return Kept(spec, 1);
    case Independence::kProductRows:
      return Kept(spec, 2);
  }
  return spec.dims;
}

void AddAttribute(const Op& op, size_t index, const AttributeValue& value, Words* words) {
  const char* const name = op.attributes[index].name;
  if (const bool* flag = std::get_if<bool>(&value)) words->Add(*flag ? 1 : 0);
  if (const std::string* text = std::get_if<std::string>(&value))
    words->AddLong(absl::HashOf(*text));
  if (const int64_t* number = std::get_if<int64_t>(&value)) {
    const bool in_sizes =
        op.independence == Independence::kBeforeAxis && std::strcmp(name, kAxis) == 0;
    if (!in_sizes && std::strcmp(name, kSeed) != 0) words->AddLong(static_cast<uint64_t>(*number));
  }
}

}  // namespace

uint32_t SizeBucket(int64_t size) {
  if (size <= 0) return 0;
  const auto value = static_cast<uint64_t>(size);
  const int octave = absl::bit_width(value) - 1;
  // The value over its power of two, from 1 to 2, in units of 2^-32.
  const uint64_t ratio = octave <= 32 ? value << (32 - octave) : value >> (octave - 32);
  constexpr uint64_t kFourthRoot = 5107605667;       // 2^(1/4)
  constexpr uint64_t kFourthRootCubed = 7223245206;  // 2^(3/4)
  const int half_octaves = 2 * octave + (ratio >= kFourthRoot) + (ratio >= kFourthRootCubed);
  return static_cast<uint32_t>(half_octaves + 1);
}

ProblemClass ClassOf(const Op& op, const Problem& problem) {
  WARPCALL_DCHECK(problem.attributes.size() == op.attributes.size(), op.name);
  ProblemClass words;
  Words all(&words);
  for (const TensorSpec& input : problem.inputs) {
    const Dims sizes = SizesOf(op, problem, input);
    // The number of sizes goes first, so that the words of two shapes can't be confused.
    all.Add(static_cast<uint32_t>(input.data_type) | static_cast<uint32_t>(sizes.size()) << 8 |
            AlignmentOf(sizes.back(), input.data_type) << 16);
    all.AddSizes(sizes);
  }
  // If inputs are broadcast over each other, the output may be many times as large.
  const bool is_spread = op.independence == Independence::kBroadcastRows ||
                         op.independence == Independence::kProductRows;
  for (const TensorSpec& output : problem.outputs) {
    const Dims sizes = SizesOf(op, problem, output);
    all.Add(AlignmentOf(sizes.back(), output.data_type));
    if (is_spread) all.AddSizes(sizes);
  }
  for (size_t i = 0; i < problem.attributes.size(); ++i)
    AddAttribute(op, i, problem.attributes[i], &all);
  return words;
}

}  // namespace warpcall
