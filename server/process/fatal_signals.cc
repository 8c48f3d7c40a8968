#include "server/process/fatal_signals.h"

#include <csignal>
#include <cstddef>
#include <initializer_list>

namespace warpcall::process {

void CatchFatalSignals(void (*handler)(int)) {
  static char stack[size_t{64} << 10];
  stack_t alternate = {};
  alternate.ss_sp = stack;
  alternate.ss_size = sizeof(stack);
  sigaltstack(&alternate, nullptr);
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGTRAP})
    CatchSignal(signal, handler);
}

void CatchSignal(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_ONSTACK;
  sigaction(signal, &action, nullptr);
}

}  // namespace warpcall::process
