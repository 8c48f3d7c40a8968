#include "server/engine/tuning_text.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/compiled/sha256.h"
#include "proto/common/status_macros.h"

namespace warpcall {
namespace {

constexpr absl::string_view kHeader = "warpcall tuning table 1\n";
constexpr absl::string_view kStable = "stable";
constexpr absl::string_view kUnstable = "unstable";

std::string Quoted(absl::string_view text) { return absl::StrCat("\"", absl::CEscape(text), "\""); }

// The shortest text that reads back as the same value.
std::string NumberText(double value) {
  for (const int digits : {6, 9, 17}) {
    const std::string text = absl::StrFormat("%.*g", digits, value);
    double read = 0;
    if (absl::SimpleAtod(text, &read) && read == value) return text;
  }
  return absl::StrCat(value);
}

std::string ValueText(const AttributeValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const int64_t* number = std::get_if<int64_t>(&value)) return absl::StrCat(*number);
  if (const double* number = std::get_if<double>(&value)) return NumberText(*number);
  return Quoted(std::get<std::string>(value));
}

std::string Checksum(absl::string_view text) {
  const compiled::Sha256 sum = compiled::Sha256Of(text);
  return absl::BytesToHexString({reinterpret_cast<const char*>(sum.data()), sum.size()});
}

std::string LinesOf(const Registry& registry, const TunedClass& tuned) {
  const auto name = [&](int row) {
    return registry.rows()[static_cast<size_t>(row)].implementation.name;
  };
  const Op& op = *registry.kernels()[static_cast<size_t>(tuned.kernel)].op;
  const TuningStamp& stamp = tuned.stamp;
  std::string lines = absl::StrCat("class ", Quoted(tuned.device_model), " ", op.name, " ",
                                   ToText(op, tuned.problem), "\nstamp ", stamp.started_unix_ns,
                                   " ", Quoted(stamp.server_version), " ", Quoted(stamp.driver),
                                   " ", stamp.sm_clock_mhz_min, " ", stamp.sm_clock_mhz_max);
  absl::StrAppend(&lines, " ", Quoted(stamp.throttle_reasons), "\n");
  for (const RightRow& right : tuned.right)
    absl::StrAppend(&lines, "right ", name(right.row), " ", NumberText(right.median_ns), " ",
                    NumberText(right.median_low_ns), " ", NumberText(right.median_high_ns), " ",
                    right.unstable ? kUnstable : kStable, "\n");
  for (const WrongRow& wrong : tuned.wrong)
    absl::StrAppend(&lines, "wrong ", name(wrong.row), " ", NumberText(wrong.max_error), " ",
                    Quoted(wrong.server_version), "\n");
  return lines;
}

// The words of a line, separated by spaces. A word that is, or ends in, a quoted text may contain
// spaces. Nothing when a quote is not closed.
std::optional<std::vector<std::string>> WordsOf(absl::string_view line) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == ' ' && !quoted) {
      words.push_back(std::move(word));
      word.clear();
      continue;
    }
    if (line[i] == '"') quoted = !quoted;
    word += line[i];
    if (line[i] == '\\' && quoted && i + 1 < line.size()) word += line[++i];
  }
  if (quoted) return std::nullopt;
  words.push_back(std::move(word));
  return words;
}

bool Unquote(absl::string_view word, std::string* text) {
  return absl::ConsumePrefix(&word, "\"") && absl::ConsumeSuffix(&word, "\"") &&
         absl::CUnescape(word, text);
}

bool ReadSpec(absl::string_view word, TensorSpec* spec) {
  for (const DataType type : kDataTypes) {
    absl::string_view dims = word;
    if (!absl::ConsumePrefix(&dims, absl::StrCat(DataTypeName(type), "[")) ||
        !absl::ConsumeSuffix(&dims, "]"))
      continue;
    spec->data_type = type;
    for (const absl::string_view dim : absl::StrSplit(dims, ','))
      if (!absl::SimpleAtoi(dim, &spec->dims.emplace_back())) return false;
    return true;
  }
  return false;
}

bool ReadValue(absl::string_view word, const AttributeValue& sample, AttributeValue* value) {
  if (std::holds_alternative<std::string>(sample))
    return Unquote(word, &value->emplace<std::string>());
  if (std::holds_alternative<int64_t>(sample))
    return absl::SimpleAtoi(word, &value->emplace<int64_t>());
  if (std::holds_alternative<double>(sample))
    return absl::SimpleAtod(word, &value->emplace<double>());
  value->emplace<bool>(word == "true");
  return word == "true" || word == "false";
}

// Parses words in ToText's format; nothing when the op has no such problem.
std::optional<Problem> ReadProblem(const Op& op, absl::Span<const std::string> words) {
  std::vector<TensorSpec> inputs;
  std::vector<NamedAttribute> attributes;
  for (const std::string& word : words) {
    if (attributes.empty() && ReadSpec(word, &inputs.emplace_back())) continue;
    if (attributes.empty()) inputs.pop_back();
    const size_t equals = word.find('=');
    if (equals == std::string::npos) return std::nullopt;
    const absl::string_view name = absl::string_view(word).substr(0, equals);
    const auto spec = absl::c_find_if(
        op.attributes, [&](const AttributeSpec& known) { return name == known.name; });
    NamedAttribute attribute{name, {}};
    if (spec == op.attributes.end() || !ReadValue(absl::string_view(word).substr(equals + 1),
                                                  spec->default_value, &attribute.value))
      return std::nullopt;
    attributes.push_back(std::move(attribute));
  }
  absl::StatusOr<Problem> problem = MakeProblem(op, inputs, attributes);
  if (!problem.ok()) return std::nullopt;
  return *std::move(problem);
}

bool IsTime(double ns) { return std::isfinite(ns) && ns >= 0; }

class Parser {
 public:
  explicit Parser(const Registry& registry) : registry_(registry) {}

  absl::StatusOr<TuningText> Parse(absl::string_view text) {
    int64_t classes = 0;
    RETURN_IF_ERROR(CheckWhole(text, &classes));
    for (const absl::string_view line : absl::StrSplit(text, '\n')) {
      ++line_;
      if (line_ == 1 || line.empty() || absl::StartsWith(line, "end ")) continue;
      if (!Read(line))
        return absl::InvalidArgumentError(absl::StrCat("line ", line_,
                                                       " is not what a tuning table has there: \"",
                                                       absl::CEscape(line.substr(0, 120)), "\""));
    }
    EndClass();
    const auto read = static_cast<int64_t>(text_.classes.size() + text_.unknown.size());
    if (read == classes) return std::move(text_);
    return absl::InvalidArgumentError(
        absl::StrCat("it has ", read, " classes, but its last line says ", classes));
  }

 private:
  // Checks the version, and that nothing of the text was lost or changed.
  static absl::Status CheckWhole(absl::string_view text, int64_t* classes) {
    if (!absl::StartsWith(text, kHeader))
      return absl::InvalidArgumentError(
          absl::StrCat("it does not begin with \"", absl::StripSuffix(kHeader, "\n"),
                       "\": it is of another version, or no tuning table"));
    const size_t last = text.rfind("\nend ");
    if (last == absl::string_view::npos || text.back() != '\n')
      return absl::InvalidArgumentError("its last line is missing: the file is incomplete");
    const absl::string_view body = text.substr(0, last + 1);
    const std::vector<absl::string_view> words =
        absl::StrSplit(absl::StripSuffix(text.substr(last + 1), "\n"), ' ');
    if (words.size() == 3 && absl::SimpleAtoi(words[1], classes) && words[2] == Checksum(body))
      return absl::OkStatus();
    return absl::InvalidArgumentError("its checksum does not match: the file has been changed");
  }

  bool Read(absl::string_view line) {
    const std::optional<std::vector<std::string>> words = WordsOf(line);
    if (!words.has_value()) return false;
    if (words->front() == "class") {
      EndClass();
      open_ = true;
      lines_ = absl::StrCat(line, "\n");
      return BeginClass(*words);
    }
    if (!open_) return false;
    absl::StrAppend(&lines_, line, "\n");
    if (words->front() == "stamp") return ReadStamp(*words);
    if (words->front() == "right") return ReadRight(*words);
    return words->front() == "wrong" && ReadWrong(*words);
  }

  bool BeginClass(const std::vector<std::string>& words) {
    tuned_ = TunedClass();
    known_ = false;
    if (words.size() < 3 || !Unquote(words[1], &tuned_.device_model)) return false;
    const absl::StatusOr<const Kernel*> kernel = registry_.Find(words[2]);
    if (!kernel.ok()) return true;
    std::optional<Problem> problem =
        ReadProblem(*(*kernel)->op, absl::MakeConstSpan(words).subspan(3));
    if (!problem.has_value()) return true;
    known_ = true;
    tuned_.kernel = (*kernel)->id;
    tuned_.problem = *std::move(problem);
    return true;
  }

  bool ReadStamp(const std::vector<std::string>& words) {
    TuningStamp& stamp = tuned_.stamp;
    return words.size() == 7 && absl::SimpleAtoi(words[1], &stamp.started_unix_ns) &&
           Unquote(words[2], &stamp.server_version) && Unquote(words[3], &stamp.driver) &&
           absl::SimpleAtoi(words[4], &stamp.sm_clock_mhz_min) &&
           absl::SimpleAtoi(words[5], &stamp.sm_clock_mhz_max) &&
           Unquote(words[6], &stamp.throttle_reasons);
  }

  bool ReadRight(const std::vector<std::string>& words) {
    RightRow right;
    if (words.size() != 6 || !absl::SimpleAtod(words[2], &right.median_ns) ||
        !absl::SimpleAtod(words[3], &right.median_low_ns) ||
        !absl::SimpleAtod(words[4], &right.median_high_ns) || !IsTime(right.median_ns) ||
        !IsTime(right.median_low_ns) || !IsTime(right.median_high_ns) ||
        (words[5] != kStable && words[5] != kUnstable))
      return false;
    right.unstable = words[5] == kUnstable;
    right.row = RowOf(words[1]);
    if (right.row >= 0) tuned_.right.push_back(right);
    return true;
  }

  bool ReadWrong(const std::vector<std::string>& words) {
    WrongRow wrong;
    if (words.size() != 4 || !absl::SimpleAtod(words[2], &wrong.max_error) ||
        !Unquote(words[3], &wrong.server_version))
      return false;
    wrong.row = RowOf(words[1]);
    if (wrong.row >= 0) tuned_.wrong.push_back(wrong);
    return true;
  }

  int RowOf(const std::string& name) const {
    if (!known_) return -1;
    for (const int id : registry_.kernels()[static_cast<size_t>(tuned_.kernel)].rows)
      if (name == registry_.rows()[static_cast<size_t>(id)].implementation.name) return id;
    return -1;
  }

  void EndClass() {
    if (open_ && known_) text_.classes.push_back(std::move(tuned_));
    if (open_ && !known_) text_.unknown.push_back(std::move(lines_));
    open_ = false;
  }

  const Registry& registry_;
  int line_ = 0;
  TuningText text_;
  // The class that is being read.
  bool open_ = false;
  bool known_ = false;
  TunedClass tuned_;
  std::string lines_;
};

}  // namespace

std::string ToText(const Op& op, const Problem& problem) {
  std::vector<std::string> words;
  for (const TensorSpec& input : problem.inputs) words.push_back(ToString(input));
  for (size_t i = 0; i < problem.attributes.size(); ++i)
    if (op.attributes[i].required || problem.attributes[i] != op.attributes[i].default_value)
      words.push_back(absl::StrCat(op.attributes[i].name, "=", ValueText(problem.attributes[i])));
  return absl::StrJoin(words, " ");
}

std::string FormatTuning(const Registry& registry,
                         absl::Span<const std::shared_ptr<const TunedClass>> classes,
                         absl::Span<const std::string> unknown) {
  std::vector<std::string> all(unknown.begin(), unknown.end());
  for (const std::shared_ptr<const TunedClass>& tuned : classes)
    all.push_back(LinesOf(registry, *tuned));
  absl::c_sort(all);
  const std::string body = absl::StrCat(kHeader, absl::StrJoin(all, ""));
  return absl::StrCat(body, "end ", all.size(), " ", Checksum(body), "\n");
}

absl::StatusOr<TuningText> ParseTuning(const Registry& registry, absl::string_view text) {
  return Parser(registry).Parse(text);
}

}  // namespace warpcall
