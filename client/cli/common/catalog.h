// The server's kernels, and what the command line names of them: kernels, implementations,
// attributes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "warpcall/client.h"

namespace warpcall::cli {

struct Choice {
  std::string kernel;
  std::vector<std::string> implementations =
      {};  // families, variants, or "FAMILY:VARIANT"; empty: "auto"
};

// Returns NOT_FOUND, with the available names and the likely one, when the kernel is not listed, or
// when an implementation is neither a family nor listed for any kernel. The server checks that the
// kernel has it.
absl::Status CheckChoice(absl::Span<const client::KernelInfo> kernels, const Choice& choice);

// Calls ListKernels and checks that `choice` is listed.
absl::StatusOr<std::vector<client::KernelInfo>> ListKernelsWith(const Choice& choice,
                                                                client::Client* client,
                                                                absl::Duration timeout);

// Returns `refusal`. If it is a NOT_FOUND that CheckChoice can explain, asks the server for its
// lists and explains it.
absl::Status Explained(const absl::Status& refusal, const Choice& choice, client::Client* client);

using AttributeMap = std::map<std::string, client::AttributeValue>;

// Gives each `name=value` the type that `kernel` declares for it in `kernels`. Those of a kernel
// that is not there get strings, so that the server says what exists. INVALID_ARGUMENT when there
// is no '=', the kernel has no such attribute (what was likely meant stands in the message), a name
// comes twice, or a value does not have its type's form: true or false, an integer, a number.
absl::StatusOr<AttributeMap> ParseAttributes(absl::Span<const std::string> texts,
                                             const std::string& kernel,
                                             absl::Span<const client::KernelInfo> kernels);

// "-1", "true", "tanh".
std::string AttributeText(const client::AttributeValue& value);

// True when the attribute `name` is present and true.
bool BoolAttribute(const AttributeMap& attributes, const std::string& name);

}  // namespace warpcall::cli
