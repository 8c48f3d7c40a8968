// Processes that compile for this one: see kernels/compiled/compile_processes.h.
#pragma once

namespace warpcall {

// From then on programs are compiled in processes of their own.
void CompileInOwnProcesses();

// The main function of such a process.
int CompilePrograms();

}  // namespace warpcall
