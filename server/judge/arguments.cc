#include "server/judge/arguments.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/compiled/ptx_parameters.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::judge {
namespace {

using compiled::PtxParameter;
using manifest::KernelArgument;
using manifest::KernelEntry;

int64_t BytesOf(KernelArgument::Type type) {
  switch (type) {
    case KernelArgument::Type::kInt32:
    case KernelArgument::Type::kUint32:
    case KernelArgument::Type::kFloat32:
      return 4;
    case KernelArgument::Type::kPointer:
    case KernelArgument::Type::kInt64:
    case KernelArgument::Type::kUint64:
      break;
  }
  return 8;
}

// "an integer" of 4 bytes and "a float" are different things; a type of bits may be either.
bool Fits(KernelArgument::Type type, const PtxParameter& parameter) {
  if (parameter.bytes != BytesOf(type)) return false;
  const char kind = parameter.type[0];
  return kind == 'b' || (kind == 'f') == (type == KernelArgument::Type::kFloat32);
}

std::string Described(const PtxParameter& parameter) {
  if (parameter.type == "b8") return absl::StrCat("a struct of ", parameter.bytes, " bytes");
  const char* const kind = parameter.type[0] == 'f'   ? "a float"
                           : parameter.type[0] == 'b' ? "a value"
                                                      : "an integer";
  return absl::StrCat(kind, " of ", parameter.bytes, " bytes");
}

const char* Described(KernelArgument::Type type) {
  switch (type) {
    case KernelArgument::Type::kPointer:
      return "a pointer, 8 bytes";
    case KernelArgument::Type::kFloat32:
      return "a float of 4 bytes";
    case KernelArgument::Type::kInt32:
    case KernelArgument::Type::kUint32:
      return "an integer of 4 bytes";
    case KernelArgument::Type::kInt64:
    case KernelArgument::Type::kUint64:
      break;
  }
  return "an integer of 8 bytes";
}

absl::Status CheckEntry(const KernelEntry& entry, const std::vector<PtxParameter>& parameters) {
  for (size_t i = 0; i < entry.arguments.size() && i < parameters.size(); ++i) {
    const KernelArgument& argument = entry.arguments[i];
    if (!Fits(argument.type, parameters[i]))
      return absl::InvalidArgumentError(
          absl::StrCat("args[", i, "] is \"", argument.text, "\", ", Described(argument.type), "; ",
                       entry.name, " takes ", Described(parameters[i]), " there"));
  }
  if (entry.arguments.size() == parameters.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("args has ", entry.arguments.size(), " entries; ",
                                                 entry.name, " takes ", parameters.size(),
                                                 " parameters"));
}

}  // namespace

absl::Status CheckArguments(const manifest::KernelManifest& manifest,
                            const compiled::CudaCode& code) {
  WARPCALL_CHECK(manifest.entries.size() == code.kernels.size(), code.kernels.size());
  for (size_t i = 0; i < code.kernels.size(); ++i)
    if (const auto parameters = compiled::PtxParametersOf(code.ptx, code.kernels[i]);
        parameters.ok())
      RETURN_IF_ERROR(CheckEntry(manifest.entries[i], *parameters));
  return absl::OkStatus();
}

}  // namespace warpcall::judge
