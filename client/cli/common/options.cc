#include "client/cli/common/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/tensor_text.h"
#include "proto/common/suggest.h"

namespace warpcall::cli {

Option Option::Required() const { return Option(option_->required()); }

Option Option::TypeName(const std::string& name) const { return Option(option_->type_name(name)); }

Option Option::ShowDefault() const { return Option(option_->capture_default_str()); }

Option Option::FromEnvironment(const std::string& variable) const {
  return Option(option_->envname(variable));
}

Option Option::OneOf(const std::vector<std::string>& values) const {
  return Option(option_->check(CLI::Validator(
      [values](std::string& text) {
        if (std::find(values.begin(), values.end(), text) != values.end()) return std::string();
        return absl::StrCat("'", text, "' is not one of ", absl::StrJoin(values, ", "),
                            DidYouMean(text, values));
      },
      absl::StrCat("{", absl::StrJoin(values, ","), "}"))));
}

Option Option::Between(double least, double most) const {  // CLI::Range lets NaN through
  const std::string limits = absl::StrFormat("%.10g to %.10g", least, most);
  return Option(option_->check(CLI::Validator(
      [least, most, limits](std::string& text) {
        double value = 0;
        const bool valid =
            CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
        return valid ? std::string() : absl::StrCat(text, " is not in the range ", limits);
      },
      limits)));
}

Option Option::IsDataType() const {
  return Option(option_->check(CLI::Validator(
      [](std::string& text) {
        const absl::StatusOr<DataType> type = ParseDataType(text);
        return type.ok() ? std::string() : std::string(type.status().message());
      },
      "{float32,float16,bfloat16}")));
}

Option Option::TakesAll() const { return Option(option_->expected(1, -1)->allow_extra_args()); }

Option Option::SplitAt(char separator) const { return Option(option_->delimiter(separator)); }

Option Option::Excludes(const Option& other) const {
  return Option(option_->excludes(other.option_));
}

Option Option::Needs(const Option& other) const { return Option(option_->needs(other.option_)); }

Option Arguments::Add(const std::string& name, std::string* value, const std::string& help) const {
  return Option(app_->add_option(name, *value, help));
}

Option Arguments::Add(const std::string& name, int* value, const std::string& help) const {
  return Option(app_->add_option(name, *value, help));
}

Option Arguments::Add(const std::string& name, int64_t* value, const std::string& help) const {
  return Option(app_->add_option(name, *value, help));
}

Option Arguments::Add(const std::string& name, uint64_t* value, const std::string& help) const {
  // CLI11 takes "-1" for the largest there is.
  return Option(app_->add_option(name, *value, help)
                    ->check(CLI::Validator(
                        [](std::string& text) {
                          uint64_t number;
                          return absl::SimpleAtoi(text, &number)
                                     ? std::string()
                                     : absl::StrCat(text, " is not a whole number from 0 to ",
                                                    std::numeric_limits<uint64_t>::max());
                        },
                        "")));
}

Option Arguments::Add(const std::string& name, double* value, const std::string& help) const {
  return Option(app_->add_option(name, *value, help));
}

Option Arguments::AddRepeated(const std::string& name, std::vector<std::string>* values,
                              const std::string& help) const {
  return Option(app_->add_option(name, *values, help)
                    ->expected(1)
                    ->allow_extra_args(false)  // values after the first belong to other options
                    ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll));
}

Option Arguments::AddFlag(const std::string& name, bool* value, const std::string& help) const {
  return Option(app_->add_flag(name, *value, help));
}

Arguments Arguments::AddSubcommand(const std::string& name, const std::string& help) const {
  return Arguments(app_->add_subcommand(name, help));
}

void Arguments::SetFooter(const std::string& text) const { app_->footer(text); }

bool Arguments::named() const { return app_->parsed(); }

absl::StatusOr<absl::Duration> ParseTtl(const std::string& what, const std::string& text) {
  absl::Duration duration = absl::ZeroDuration();
  if (absl::ParseDuration(text, &duration) && duration > absl::ZeroDuration() &&
      duration < absl::InfiniteDuration())
    return duration;
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is \"", text, "\"; it must be a duration over 0, as 90s, 10m or 1h30m"));
}

absl::StatusOr<absl::Duration> TtlOption::duration() const {
  if (text_.empty()) return absl::ZeroDuration();
  return ParseTtl("--ttl", text_);
}

absl::StatusOr<absl::Duration> ParseTimeout(const std::string& text) {
  absl::Duration timeout = absl::ZeroDuration();
  if (text.empty()) return timeout;
  double seconds = 0;
  const bool parsed = absl::SimpleAtod(text, &seconds) ? (timeout = absl::Seconds(seconds), true)
                                                       : absl::ParseDuration(text, &timeout);
  constexpr absl::Duration kMin = absl::Milliseconds(1), kMax = absl::Hours(24);
  if (parsed && timeout >= kMin && timeout <= kMax) return timeout;
  return absl::InvalidArgumentError(absl::StrCat(
      "--timeout ", text, ": it must be 0.001 to 86400 seconds, or a duration as 500ms or 2m"));
}

}  // namespace warpcall::cli
