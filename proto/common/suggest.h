// Suggests the names that a misspelt one most likely meant.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace warpcall {

// Returns the name in `known` nearest to `text`, or the only one that begins with it or with which
// it begins; empty if none is near. Letters left out, added, changed or swapped count, in either
// case; digits count twice unless they are swapped: float64 is not near float32.
std::string Nearest(absl::string_view text, absl::Span<const std::string> known);

// "; did you mean NAME?", or nothing where no name is near.
std::string DidYouMean(absl::string_view text, absl::Span<const std::string> known);

}  // namespace warpcall
