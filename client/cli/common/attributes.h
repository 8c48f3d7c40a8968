// `--attribute name=value` as typed values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/cpp/client.h"

namespace warpcall::cli {

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

// Whether `name` is there and true.
bool BoolAttribute(const AttributeMap& attributes, const std::string& name);

}  // namespace warpcall::cli
