// warpcall kernels: what the server can compute, and how.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/attributes.h"
#include "client/cli/common/command.h"
#include "client/cli/common/options.h"
#include "client/cli/common/output.h"
#include "client/cli/common/screen.h"
#include "client/cli/common/table.h"
#include "client/cpp/client.h"

namespace warpcall::cli {
namespace {

using nlohmann::json;

std::vector<std::string> TypeNames(const client::ImplementationInfo& implementation) {
  std::vector<std::string> names;
  for (const DataType type : implementation.data_types) names.push_back(DataTypeName(type));
  return names;
}

// Most take every type; their names would take the summary's place.
std::string TypesText(const client::ImplementationInfo& implementation) {
  if (implementation.data_types.size() == static_cast<size_t>(kDataTypeCount)) return "all";
  return absl::StrJoin(TypeNames(implementation), ",");
}

json ToJson(const client::KernelInfo& kernel) {
  json attributes = json::array();
  for (const client::AttributeInfo& attribute : kernel.attributes) {
    attributes.push_back({{"name", attribute.name},
                          {"summary", attribute.summary},
                          {"default_value", cli::ToJson(attribute.default_value)},
                          {"allowed_values", attribute.allowed_values},
                          {"required", attribute.required}});
  }
  json implementations = json::array();
  for (const client::ImplementationInfo& implementation : kernel.implementations) {
    implementations.push_back({{"name", implementation.name},
                               {"family", implementation.family},
                               {"device_kind", implementation.device_kind},
                               {"summary", implementation.summary},
                               {"data_types", TypeNames(implementation)},
                               {"unavailable", implementation.unavailable},
                               {"variants", implementation.variants}});
  }
  return {{"name", kernel.name},
          {"summary", kernel.summary},
          {"input_names", kernel.input_names},
          {"inputs_min", kernel.inputs_min},
          {"attributes", std::move(attributes)},
          {"implementations", std::move(implementations)}};
}

std::string Describe(const client::KernelInfo& kernel) {
  std::string text = Fitted("",
                            absl::StrCat(kernel.name, "(", absl::StrJoin(kernel.input_names, ", "),
                                         "): ", kernel.summary),
                            0);
  if (kernel.inputs_min > 0)
    absl::StrAppend(&text, "  takes ", kernel.inputs_min, " to ", kernel.input_names.size(),
                    " inputs, as its attributes say\n");
  for (const client::AttributeInfo& attribute : kernel.attributes) {
    const std::string shown =
        attribute.required ? "... (required)" : AttributeText(attribute.default_value);
    const std::string allowed =
        attribute.allowed_values.empty()
            ? ""
            : absl::StrCat(" (", absl::StrJoin(attribute.allowed_values, ", "), ")");
    const std::string before = absl::StrCat("  --attribute ", attribute.name, "=", shown, "  ");
    absl::StrAppend(&text, Fitted(before, attribute.summary + allowed, before.size()));
  }
  return text;
}

int Run(const Globals& globals, const TimeoutOption& timeout) {
  client::Client client(globals.server, OptionsOf(globals));
  const auto kernels = client.ListKernels(timeout.duration());
  if (!kernels.ok()) return Refused(kernels.status());
  if (globals.json) {
    json list = json::array();
    for (const client::KernelInfo& kernel : *kernels) list.push_back(ToJson(kernel));
    PrintJson({{"kernels", std::move(list)}});
    return kExitOk;
  }
  for (const client::KernelInfo& kernel : *kernels) PrintText(Describe(kernel));
  Table table({{"KERNEL"}, {"IMPLEMENTATION"}, {"DEVICE"}, {"TYPES"}, {"VARIANTS"}, {"SUMMARY"}});
  for (const client::KernelInfo& kernel : *kernels) {
    for (const client::ImplementationInfo& implementation : kernel.implementations) {
      table.AddRow({kernel.name, implementation.name, implementation.device_kind,
                    TypesText(implementation), absl::StrJoin(implementation.variants, ", "),
                    implementation.unavailable.empty()
                        ? implementation.summary
                        : absl::StrCat("UNAVAILABLE: ", implementation.unavailable)});
    }
  }
  PrintText(absl::StrCat("\n", table.ToString()));
  return kExitOk;
}

}  // namespace

Command AddKernelsCommand(const Arguments& root, const Globals& globals) {
  const Arguments arguments = root.AddSubcommand(
      "kernels",
      "List the kernels, their attributes, and their implementations in order of preference");
  const auto timeout = std::make_shared<TimeoutOption>(arguments);
  return {arguments, [&globals, timeout] { return Run(globals, *timeout); }};
}

}  // namespace warpcall::cli
