#include "server/access/policy_warnings.h"

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "proto/common/suggest.h"

namespace warpcall {
namespace {

void WarnOfKernels(const std::string& whose, const Policy& policy,
                   const std::vector<std::string>& kernels, std::vector<std::string>* warnings) {
  if (!policy.kernels.has_value()) return;
  for (const std::string& name : *policy.kernels)
    if (!absl::c_linear_search(kernels, name))
      warnings->push_back(absl::StrCat(whose, " names kernel ", name,
                                       ", which this server does not have",
                                       DidYouMean(name, kernels)));
}

}  // namespace

std::vector<std::string> PolicyWarnings(const PolicyTable& policies,
                                        const PolicySurroundings& surroundings) {
  std::vector<std::string> warnings;
  const std::shared_ptr<const Policy> fallback = policies.Of("");
  if (fallback != nullptr)
    WarnOfKernels("the default policy", *fallback, surroundings.kernels, &warnings);
  for (const auto& [name, policy] : policies.principals())
    WarnOfKernels(absl::StrCat("the policy of ", name), *policy, surroundings.kernels, &warnings);
  if (surroundings.has_certificates) return warnings;
  if (!surroundings.tokens.has_value()) {
    if (policies.size() > 0)
      warnings.push_back(
          absl::StrCat("the policies of ", policies.size(),
                       " principals apply to nobody: no caller has a name without --token_file or "
                       "--tls_client_ca"));
    return warnings;
  }
  const std::vector<std::string> tokens(surroundings.tokens->begin(), surroundings.tokens->end());
  for (const auto& [name, policy] : policies.principals())
    if (!surroundings.tokens->contains(name))
      warnings.push_back(absl::StrCat("the policy of ", name,
                                      " applies to nobody: no token has that name",
                                      DidYouMean(name, tokens)));
  for (const std::string& name : tokens)
    if (policies.Of(name) == nullptr)
      warnings.push_back(absl::StrCat(
          name, " has a token and may do nothing: it has no policy, and there is no default"));
  return warnings;
}

}  // namespace warpcall
