// Checks of invariants in device code. Compilers of host code check them in the builds of
// WARPCALL_DCHECK: tests/kernels/emulated runs kernels there, and tests evaluate the arithmetic
// that kernels share with the host. nvcc compiles the operands and evaluates none of them.
#pragma once

#ifdef __CUDACC__
#define WARPCALL_DEVICE_CHECK(expression, ...) static_cast<void>(sizeof(!(expression)))
#else
#include "proto/common/check.h"
#define WARPCALL_DEVICE_CHECK(...) WARPCALL_DCHECK(__VA_ARGS__)
#endif
