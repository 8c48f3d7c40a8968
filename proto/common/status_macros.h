// Early return of a Status, in the form Debian's Abseil lacks.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define WARPCALL_CONCAT_INNER(a, b) a##b
#define WARPCALL_CONCAT(a, b) WARPCALL_CONCAT_INNER(a, b)

// Returns from the enclosing function when `expression` is not OK.
#define RETURN_IF_ERROR(expression)                                        \
  do {                                                                     \
    if (absl::Status warpcall_status = (expression); !warpcall_status.ok()) \
      return warpcall_status;                                              \
  } while (false)

// Assigns the value of a StatusOr to `target`, or returns its status.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(WARPCALL_CONCAT(warpcall_statusor_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_INNER(statusor, target, expression) \
  auto statusor = (expression);                              \
  if (!statusor.ok()) return std::move(statusor).status();   \
  target = *std::move(statusor)
