// The rules that look at one file or at the whole tree, and all of them together.
#pragma once

#include <vector>

#include "absl/types/span.h"
#include "tests/tidy/source.h"

namespace warpcall::tidy {

inline constexpr int kFileLinesMax = 500;
inline constexpr int kRootCMakeLinesMax = 120;
inline constexpr int kColumnsMax = 100;

// Lines of the file, and columns of each C++ line; a line with an include or a URL may be longer.
std::vector<Finding> CheckSize(const Source& source);

// Every header has #pragma once; a -inl.h, which Highway compiles once per target in one
// translation unit, has the guard that Highway's own such headers have.
std::vector<Finding> CheckIncludeGuard(const Source& source);

// Backends are chosen by file, never by #if: none about CUDA under server/.
std::vector<Finding> CheckConditionals(const Source& source);

// Where tensors pass through, the host copies bytes in one place, which counts them:
// server/engine/host_copy.h. Nothing else in server/engine, server/transport and server/worker
// calls what copies memory.
std::vector<Finding> CheckCopies(const Source& source);

// A note for later says what it waits for: the word, then "(who or which issue): reason".
std::vector<Finding> CheckNotes(const Source& source);

// Every file that is compiled is named in the CMakeLists.txt of its folder or of one above it, so
// that no test and no kernel is left out without anyone noticing.
std::vector<Finding> CheckListed(absl::Span<const Source> sources);

// Everything, in the order of `sources`.
std::vector<Finding> CheckAll(absl::Span<const Source> sources);

}  // namespace warpcall::tidy
