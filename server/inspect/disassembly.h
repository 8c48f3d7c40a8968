// Prints a kernel's machine code with NVIDIA's tools, on machines that have them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/plan.h"
#include "server/inspect/tool.h"

namespace warpcall::inspect {

// The path of this program's file, valid in other processes too.
std::string ThisProgram();

struct DisassemblyOptions {
  std::vector<std::string> folders = ToolFolders();
  std::string program = ThisProgram();  // the program with the linked code
  ToolLimits limits = {};
  size_t text_bytes = size_t{4} << 20;  // per file
};

// Returns a file in "sass" and, for code linked into the program, one in "ptx"; none for code
// without an entry. A comment with the reason takes the place of a text that the tools do not give.
std::vector<SourceFile> Disassemble(const MachineCode& code, const DisassemblyOptions& options);

}  // namespace warpcall::inspect
