#include "client/cli/bench/variation.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/common/tensor_text.h"

namespace warpcall::cli {
namespace {

// Most lines of one implementation; more would be illegible.
constexpr size_t kLinesMax = 8;

using Sizes = std::vector<int64_t>;

// The places in a shape's text that vary together, and what they are called.
struct Group {
  std::vector<size_t> places;
  std::string name;  // "N", "M=N"
  std::set<int64_t> values;
};

std::optional<Sizes> ParseSizes(const std::string& shape) {
  Sizes sizes;
  for (const absl::string_view part : absl::StrSplit(shape, absl::ByAnyChar("x,"))) {
    const auto size = ParseDimension(part);
    if (!size.ok()) return std::nullopt;
    sizes.push_back(*size);
  }
  return sizes;
}

// "MxNxK" of a product, "MxN" of two dimensions; else d0, d1, ...
std::string NameOf(size_t place, const BenchPoint& point, size_t places) {
  static constexpr const char* kLetters[] = {"M", "N", "K"};
  const bool one_shape = point.shape.find(',') == std::string::npos;
  const bool product = places == 3 && point.call.inputs.size() == 2;
  if (one_shape && places == 1) return "N";
  if (one_shape && (places == 2 || product)) return kLetters[place];
  return absl::StrCat("d", place);
}

// The sizes of each point; empty unless all points have the same number of them.
std::vector<Sizes> SizesOf(const BenchReport& report) {
  std::vector<Sizes> all;
  for (const BenchPoint& point : report.points) {
    std::optional<Sizes> sizes = ParseSizes(point.shape);
    if (!sizes.has_value() || (!all.empty() && sizes->size() != all[0].size())) return {};
    all.push_back(*std::move(sizes));
  }
  return all;
}

std::vector<Group> GroupsOf(const std::vector<Sizes>& sizes, const BenchReport& report) {
  std::vector<Group> groups;
  for (size_t place = 0; place < sizes[0].size(); ++place) {
    std::set<int64_t> values;
    for (const Sizes& point : sizes) values.insert(point[place]);
    if (values.size() < 2) continue;
    const std::string name = NameOf(place, report.points[0], sizes[0].size());
    const auto same = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return std::all_of(sizes.begin(), sizes.end(), [&](const Sizes& point) {
        return point[group.places[0]] == point[place];
      });
    });
    if (same == groups.end()) {
      groups.push_back({{place}, name, std::move(values)});
    } else {
      same->places.push_back(place);
      absl::StrAppend(&same->name, "=", name);
    }
  }
  return groups;
}

// The shape's text with names for the sizes that vary: "1024xN".
std::string Pattern(const BenchPoint& point, const std::vector<Group>& groups, size_t places) {
  std::set<size_t> varying;
  for (const Group& group : groups) varying.insert(group.places.begin(), group.places.end());
  std::string pattern, size;
  size_t place = 0;
  for (const char c : point.shape + ",") {
    if (c != 'x' && c != ',') {
      size.push_back(c);
      continue;
    }
    absl::StrAppend(&pattern, varying.count(place) > 0 ? NameOf(place, point, places) : size,
                    std::string(1, c));
    ++place;
    size.clear();
  }
  pattern.pop_back();
  return pattern;
}

// True if some line has more than one point.
bool IsGrid(const std::vector<Sizes>& sizes, const Group& axis, const Group& line) {
  std::map<int64_t, std::set<int64_t>> places;
  for (const Sizes& point : sizes) places[point[line.places[0]]].insert(point[axis.places[0]]);
  return std::any_of(places.begin(), places.end(),
                     [](const auto& one) { return one.second.size() > 1; });
}

}  // namespace

Variation VariationOf(const BenchReport& report) {
  const std::vector<Sizes> sizes = SizesOf(report);
  if (sizes.empty()) return {};
  std::vector<Group> groups = GroupsOf(sizes, report);
  if (groups.empty() || groups.size() > 2) return {};
  // The axis is the group with more values, or else the later one, which a sweep changes fastest.
  const bool second = groups.size() == 2 && groups[1].values.size() >= groups[0].values.size();
  const Group& axis = groups[second ? 1 : 0];
  const Group* const line = groups.size() < 2 ? nullptr : &groups[second ? 0 : 1];
  if (*axis.values.begin() <= 0) return {};  // has no place on a logarithmic axis
  if (line != nullptr && (line->values.size() > kLinesMax || !IsGrid(sizes, axis, *line)))
    return {};
  const std::string pattern = Pattern(report.points[0], groups, sizes[0].size());
  Variation variation{.axis = axis.name == pattern ? pattern
                                                   : absl::StrCat(axis.name, " of ", pattern)};
  for (const Sizes& point : sizes) {
    variation.places.push_back(static_cast<double>(point[axis.places[0]]));
    variation.lines.push_back(
        line == nullptr ? "" : absl::StrCat(line->name, "=", point[line->places[0]]));
  }
  return variation;
}

}  // namespace warpcall::cli
