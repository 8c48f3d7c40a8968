// Has a process say something before it dies of a fault.
#pragma once

namespace warpcall::process {

// Calls `handler` with SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT and SIGTRAP, on a stack of its own:
// code that overflows the usual one can be at fault. For the calling thread; once in a process.
void CatchFatalSignals(void (*handler)(int signal));
// Likewise one more signal, on the same stack.
void CatchSignal(int signal, void (*handler)(int signal));

}  // namespace warpcall::process
