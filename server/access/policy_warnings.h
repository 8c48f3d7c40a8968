// Finds entries of a policy file that are valid and yet have no effect, mostly by a slip.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "server/access/policy.h"

namespace warpcall {

// The callers and kernels that entries of a policy file can name.
struct PolicySurroundings {
  std::optional<std::set<std::string>> tokens;  // names in the token file; no value: no such file
  bool has_certificates = false;                // clients show certificates
  std::vector<std::string> kernels;             // names of all kernels
};

// Returns a sentence for each kernel that does not exist, each principal that no caller can be and
// each token that may do nothing. Where clients show certificates, whose subjects are unknown, only
// kernels are checked.
std::vector<std::string> PolicyWarnings(const PolicyTable& policies,
                                        const PolicySurroundings& surroundings);

}  // namespace warpcall
