// What NVIDIA's tools print of a kernel's machine code, on machines that have them.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "kernels/plan.h"
#include "server/inspect/tool.h"

namespace warpcall::inspect {

// Its file, for other processes too.
std::string ThisProgram();

struct DisassemblyOptions {
  std::vector<std::string> folders = ToolFolders();
  std::string program = ThisProgram();  // that holds what is linked
  ToolLimits limits = {};
  size_t text_bytes = size_t{4} << 20;  // of a file
};

// A file in "sass" and, of code that is linked into the program, one in "ptx". In the place of a
// text that the tools do not give stands a comment that says why. None of code without an entry.
std::vector<SourceFile> Disassemble(const MachineCode& code, const DisassemblyOptions& options);

}  // namespace warpcall::inspect
