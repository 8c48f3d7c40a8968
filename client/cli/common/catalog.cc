#include "client/cli/common/catalog.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/common/suggest.h"
#include "proto/common/status_macros.h"

namespace warpcall::cli {
namespace {

using client::ImplementationInfo;
using client::KernelInfo;

// For a better message nobody waits longer.
constexpr absl::Duration kExplainTimeout = absl::Seconds(2);
// Those of the public contract: a server may know one without having a row of it.
constexpr const char* kFamilies[] = {"cpu",     "cuda",   "triton",   "compiled",
                                     "library", "manual", "reference"};

void AddOnce(const std::string& name, std::vector<std::string>* names) {
  if (std::find(names->begin(), names->end(), name) == names->end()) names->push_back(name);
}

absl::Status Unknown(absl::string_view what, absl::string_view name,
                     const std::vector<std::string>& known) {
  return absl::NotFoundError(absl::StrCat(what, " \"", name, "\" is unknown; there are: ",
                                          absl::StrJoin(known, ", "), DidYouMean(name, known)));
}

// Of `kernel`; of all kernels where `kernel` is empty.
std::vector<std::string> ImplementationNames(absl::Span<const KernelInfo> kernels,
                                             const std::string& kernel) {
  std::vector<std::string> names;
  for (const KernelInfo& info : kernels) {
    if (!kernel.empty() && info.name != kernel) continue;
    for (const ImplementationInfo& implementation : info.implementations) {
      AddOnce(implementation.name, &names);
      AddOnce(implementation.family, &names);
      for (const std::string& variant : implementation.variants)
        AddOnce(VariantName(implementation.name, variant), &names);
    }
  }
  return names;
}

}  // namespace

std::string VariantName(const std::string& implementation, const std::string& variant) {
  return variant.empty() ? implementation : absl::StrCat(implementation, ":", variant);
}

absl::Status CheckChoice(absl::Span<const KernelInfo> kernels, const Choice& choice) {
  std::vector<std::string> names;
  for (const KernelInfo& info : kernels) names.push_back(info.name);
  if (std::find(names.begin(), names.end(), choice.kernel) == names.end())
    return Unknown("kernel", choice.kernel, names);
  std::vector<std::string> known = ImplementationNames(kernels, "");
  if (known.empty()) return absl::OkStatus();
  known.insert(known.end(), std::begin(kFamilies), std::end(kFamilies));
  known.insert(known.end(), {"auto", ""});
  for (const KernelInfo& info : kernels) {
    for (const ImplementationInfo& implementation : info.implementations) {
      known.push_back(VariantName(implementation.name, "*"));
      known.insert(known.end(), implementation.variants.begin(), implementation.variants.end());
    }
  }
  for (const std::string& implementation : choice.implementations)
    if (std::find(known.begin(), known.end(), implementation) == known.end())
      return Unknown(absl::StrCat("implementation of ", choice.kernel), implementation,
                     ImplementationNames(kernels, choice.kernel));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<KernelInfo>> ListKernelsWith(const Choice& choice,
                                                        client::Client* client,
                                                        absl::Duration timeout) {
  ASSIGN_OR_RETURN(std::vector<KernelInfo> kernels, client->ListKernels(timeout));
  RETURN_IF_ERROR(CheckChoice(kernels, choice));
  return kernels;
}

absl::Status Explained(const absl::Status& refusal, const Choice& choice, client::Client* client) {
  if (!absl::IsNotFound(refusal)) return refusal;
  const auto kernels = client->ListKernels(kExplainTimeout);
  if (!kernels.ok()) return refusal;
  const absl::Status known = CheckChoice(*kernels, choice);
  return known.ok() ? refusal : known;
}

}  // namespace warpcall::cli
