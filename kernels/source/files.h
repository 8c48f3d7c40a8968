// The text of the ops' files, which is part of the binary, so that a server can show what it runs.
#pragma once

#include <vector>

#include "absl/strings/string_view.h"
#include "kernels/plan.h"

namespace warpcall {

// The file at `path`, from the root of the project or with whatever a compiler puts before that, of
// an op that brought its folder from that folder;
// what it includes of its own folder, and these in turn: each once, in the order in which they are
// met. A .cc that launches Triton's kernels brings the .py that they are written in, which has its
// name. Empty when the file is not part of the binary.
std::vector<SourceFile> FilesOf(absl::string_view path);

}  // namespace warpcall
