#include "client/cli/common/shape_sweep.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

using absl::string_view;

using Values = std::vector<int64_t>;

absl::Status Invalid(string_view text, string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("'", text, "': ", problem));
}

absl::Status NotADimension(string_view text) {
  return Invalid(text, absl::StrCat("a dimension is 0 to ", INT64_MAX,
                                    ", {256,512,4096}, {256..262144:x2} or {1024..8192:+1024}"));
}

absl::Status CheckBraces(string_view text) {
  bool open = false;
  for (const char c : text) {
    if (c == '{' && open) return absl::InvalidArgumentError("'{' within '{'");
    if (c == '}' && !open) return absl::InvalidArgumentError("'}' without '{'");
    if (c == '{' || c == '}') open = c == '{';
  }
  return open ? absl::InvalidArgumentError("'{' without '}'") : absl::OkStatus();
}

std::vector<string_view> SplitOutsideBraces(string_view text, char separator) {
  std::vector<string_view> parts;
  size_t begin = 0;
  bool open = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '{' || text[i] == '}') open = text[i] == '{';
    if (text[i] != separator || open) continue;
    parts.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

struct Range {
  int64_t first = 0;
  int64_t last = 0;
  bool multiplies = false;  // by `step`, or else adds it
  int64_t step = 0;
};

// Parses the text of a range: braces with ".." between them.
absl::StatusOr<Range> ParseRange(string_view text) {
  const std::string braced = absl::StrCat("{", text, "}");
  Range range;
  const std::pair<string_view, string_view> ends_and_step =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const std::pair<string_view, string_view> ends =
      absl::StrSplit(ends_and_step.first, absl::MaxSplits("..", 1));
  string_view step = ends_and_step.second;
  range.multiplies = absl::ConsumePrefix(&step, "x");
  if (!range.multiplies && !absl::ConsumePrefix(&step, "+")) return NotADimension(braced);
  for (const auto& [part, value] :
       {std::pair(ends.first, &range.first), {ends.second, &range.last}, {step, &range.step}}) {
    const auto number = ParseDimension(part);
    if (!number.ok()) return NotADimension(braced);
    *value = *number;
  }
  if (range.first > range.last)
    return Invalid(braced,
                   absl::StrCat("begins at ", range.first, ", above its end, ", range.last));
  if (range.multiplies && (range.first < 1 || range.step < 2))
    return Invalid(braced, "with x a sweep begins at 1 or more and its factor is 2 or more");
  if (range.step < 1) return Invalid(braced, "the step is 0; it must be 1 or more");
  return range;
}

absl::StatusOr<Values> ExpandRange(string_view text) {
  ASSIGN_OR_RETURN(const Range range, ParseRange(text));
  Values values;
  for (int64_t value = range.first; value <= range.last;) {
    if (values.size() == kSweepPointsMax)
      return Invalid(absl::StrCat("{", text, "}"),
                     absl::StrCat("has more than ", kSweepPointsMax, " values"));
    values.push_back(value);
    const bool overflows = range.multiplies ? __builtin_mul_overflow(value, range.step, &value)
                                            : __builtin_add_overflow(value, range.step, &value);
    if (overflows) break;
  }
  return values;
}

absl::StatusOr<Values> ExpandDimension(string_view text) {
  string_view inner = text;
  const bool braces = absl::ConsumePrefix(&inner, "{") && absl::ConsumeSuffix(&inner, "}");
  if (braces && absl::StrContains(inner, "..")) return ExpandRange(inner);
  if (!braces) inner = text;
  Values values;
  for (string_view part : absl::StrSplit(inner, ',')) {
    const auto value = ParseDimension(part);
    if (!value.ok()) return NotADimension(text);
    values.push_back(*value);
  }
  return values;
}

// A text's dimensions one after the other, with the values of each, and how many each input has.
struct Sweep {
  std::vector<Values> dimensions;
  std::vector<size_t> ranks;
  size_t points = 1;
};

// Returns the number of points: of all combinations, which may be cut to 2^32, or of the braces'
// values in turn.
absl::StatusOr<size_t> CountPoints(absl::Span<const Values> dimensions, Braces braces) {
  size_t points = 1;
  for (const Values& values : dimensions) {
    if (braces == Braces::kCombined) {
      points = std::min<size_t>(points * values.size(), size_t{1} << 32);
    } else if (values.size() > 1) {
      if (points > 1 && points != values.size())
        return absl::InvalidArgumentError(
            absl::StrCat("has braces of ", points, " and of ", values.size(),
                         " values; with --zip all have the same number"));
      points = values.size();
    }
  }
  if (points > kSweepPointsMax)
    return absl::InvalidArgumentError(
        absl::StrCat("has ", points >= size_t{1} << 32 ? "over 4 billion" : absl::StrCat(points),
                     " points; at most ", kSweepPointsMax, " are allowed"));
  return points;
}

absl::StatusOr<Sweep> ParseSweep(string_view text, Braces braces) {
  RETURN_IF_ERROR(CheckBraces(text));
  Sweep sweep;
  for (string_view input : SplitOutsideBraces(text, ',')) {
    const std::vector<string_view> parts = SplitOutsideBraces(input, 'x');
    for (string_view part : parts) {
      ASSIGN_OR_RETURN(Values values, ExpandDimension(part));
      sweep.dimensions.push_back(std::move(values));
    }
    sweep.ranks.push_back(parts.size());
  }
  ASSIGN_OR_RETURN(sweep.points, CountPoints(sweep.dimensions, braces));
  return sweep;
}

std::string ShapeText(const Shapes& shapes) {
  return absl::StrJoin(shapes, ",", [](std::string* out, const Shape& shape) {
    absl::StrAppend(out, absl::StrJoin(shape, "x"));
  });
}

// The point whose dimensions have these `places` in their lists of values.
ShapePoint PointAt(const Sweep& sweep, absl::Span<const size_t> places) {
  ShapePoint point;
  size_t next = 0;
  for (const size_t rank : sweep.ranks) {
    Shape shape;
    for (size_t i = 0; i < rank; ++i, ++next) shape.push_back(sweep.dimensions[next][places[next]]);
    point.shapes.push_back(std::move(shape));
  }
  point.text = ShapeText(point.shapes);
  return point;
}

bool IsWeight(const client::KernelInfo& kernel, size_t input) {
  return input < kernel.input_roles.size() &&
         kernel.input_roles[input] == client::OperandRole::kShared;
}

// The one kernel with a matrix among its weights.
constexpr char kLinear[] = "linear";

// Reads MxNxK, or the shape of rows, whose elements have a value each in every weight.
absl::StatusOr<Shapes> ShapesWithWeights(const ShapePoint& point,
                                         const client::KernelInfo& kernel) {
  const Shape& only = point.shapes[0];
  const bool is_linear = kernel.name == kLinear;
  if (point.shapes.size() == 1 && is_linear && only.size() == 3)
    return Shapes{{only[0], only[2]}, {only[1], only[2]}, {only[1]}};
  if (point.shapes.size() == 1 && !is_linear) {
    Shapes shapes;
    for (size_t i = 0; i < kernel.input_names.size(); ++i)
      shapes.push_back(IsWeight(kernel, i) ? Shape(1, only.back()) : only);
    return shapes;
  }
  return Invalid(absl::StrCat("--shape ", point.text),
                 absl::StrCat(kernel.name, " takes ", kernel.input_names.size(),
                              " inputs: ", absl::StrJoin(kernel.input_names, ", "), "; give ",
                              is_linear ? "MxNxK" : "the shape of the first",
                              " or a shape for each, with commas between them"));
}

}  // namespace

bool HasWeights(const client::KernelInfo& kernel) {
  for (size_t i = 0; i < kernel.input_roles.size(); ++i)
    if (IsWeight(kernel, i)) return true;
  return false;
}

absl::StatusOr<std::vector<ShapePoint>> ParseShapeSweep(string_view text, Braces braces) {
  const absl::StatusOr<Sweep> sweep = ParseSweep(text, braces);
  if (!sweep.ok()) return Invalid(absl::StrCat("--shape ", text), sweep.status().message());
  std::vector<ShapePoint> points;
  std::vector<size_t> places(sweep->dimensions.size(), 0);
  while (points.size() < sweep->points) {
    points.push_back(PointAt(*sweep, places));
    for (size_t i = places.size(); i > 0; --i) {
      if (++places[i - 1] < sweep->dimensions[i - 1].size()) {
        if (braces == Braces::kCombined) break;
      } else {
        places[i - 1] = 0;
      }
    }
  }
  return points;
}

absl::StatusOr<Shapes> InputShapes(const ShapePoint& point, const std::string& kernel,
                                   const AttributeMap& attributes,
                                   absl::Span<const client::KernelInfo> kernels) {
  const auto info = std::find_if(kernels.begin(), kernels.end(),
                                 [&](const auto& listed) { return listed.name == kernel; });
  if (info == kernels.end() || info->input_names.size() == point.shapes.size()) return point.shapes;
  const size_t inputs = info->input_names.size();
  if (info->inputs_min > 0) {  // so many as there are shapes, if that can be
    if (point.shapes.size() >= static_cast<size_t>(info->inputs_min) &&
        point.shapes.size() < inputs)
      return point.shapes;
    return Invalid(absl::StrCat("--shape ", point.text),
                   absl::StrCat(kernel, " takes ", info->inputs_min, " to ", inputs,
                                " inputs; give a shape for each, with commas between them"));
  }
  const Shape& only = point.shapes[0];
  if (HasWeights(*info)) return ShapesWithWeights(point, *info);
  if (inputs == 2 && point.shapes.size() == 1 && only.size() == 3) {
    const auto [m, n, k] = std::tuple(only[0], only[1], only[2]);
    return Shapes{BoolAttribute(attributes, "transpose_a") ? Shape{k, m} : Shape{m, k},
                  BoolAttribute(attributes, "transpose_b") ? Shape{n, k} : Shape{k, n}};
  }
  if (inputs != 2 && point.shapes.size() == 1) return Shapes(inputs, only);
  return Invalid(
      absl::StrCat("--shape ", point.text),
      absl::StrCat(kernel, " takes ", inputs, " inputs: ", absl::StrJoin(info->input_names, ", "),
                   "; give ", inputs == 2 ? "MxNxK or " : "one for all or ",
                   "a shape for each, with commas between them"));
}

absl::StatusOr<std::vector<client::TensorSpec>> OneProblem(
    const ProblemText& text, const AttributeMap& attributes,
    absl::Span<const client::KernelInfo> kernels) {
  ASSIGN_OR_RETURN(const std::vector<ShapePoint> points, ParseShapeSweep(text.shape));
  if (points.size() != 1)
    return Invalid(absl::StrCat("--shape ", text.shape),
                   absl::StrCat("has ", points.size(), " points; only one is taken here"));
  ASSIGN_OR_RETURN(const Shapes shapes, InputShapes(points[0], text.kernel, attributes, kernels));
  ASSIGN_OR_RETURN(const DataType type, ParseDataType(text.type.empty() ? "float32" : text.type));
  std::vector<client::TensorSpec> inputs;
  for (const Shape& shape : shapes) inputs.push_back({type, shape});
  return inputs;
}

}  // namespace warpcall::cli
