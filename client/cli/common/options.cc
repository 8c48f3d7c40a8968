#include "client/cli/common/options.h"

#include "absl/strings/str_cat.h"

namespace warpcall::cli {

CLI::Option* AddRepeated(CLI::App* app, const std::string& name, std::vector<std::string>* values,
                         const std::string& help) {
  return app->add_option(name, *values, help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

CLI::Validator Between(double least, double most) {
  const std::string limits = absl::StrCat(least, " to ", most);
  return CLI::Validator(
      [least, most, limits](std::string& text) {
        double value = 0;
        const bool valid =
            CLI::detail::lexical_cast(text, value) && value >= least && value <= most;
        return valid ? std::string() : absl::StrCat(text, " is not in the range ", limits);
      },
      limits);
}

CLI::Validator IsDataType() { return CLI::IsMember({"f32", "f16", "bf16"}); }

}  // namespace warpcall::cli
