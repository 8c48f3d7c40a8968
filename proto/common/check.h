// Checks of invariants. A failed check is a defect of this program: it writes the expression, its
// place and its values to stderr and aborts. No input from outside may fail a check.
//
//   WARPCALL_DCHECK(used <= total, used, total);
//
// writes "invariant broken at pool.cc:12: used <= total (used, total: 5, 4)".
#pragma once

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>

namespace warpcall::check_internal {

// Returns a value of a failed check as text: a number, an enumerator's number, a text or a pointer.
template <typename T>
std::string ToText(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<T>) {
    return std::to_string(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::is_arithmetic_v<T>) {
    return std::to_string(value);
  } else if constexpr (std::is_constructible_v<std::string, T>) {
    return std::string(value);
  } else {
    char text[2 + 16 + 1];  // for 64 bits
    std::snprintf(text, sizeof(text), "0x%" PRIxPTR, reinterpret_cast<uintptr_t>(value));
    return text;
  }
}

// `names` is the source text of `values`, "" for none.
template <typename... Values>
[[noreturn, gnu::cold, gnu::noinline]] void Fail(const char* place, const char* expression,
                                                 const char* names, const Values&... values) {
  std::string text;
  ((text += (text.empty() ? "" : ", ") + ToText(values)), ...);
  if (!text.empty()) text = " (" + std::string(names) + ": " + text + ")";
  std::fprintf(stderr, "invariant broken at %s: %s%s\n", place, expression, text.c_str());
  std::abort();
}

}  // namespace warpcall::check_internal

#define WARPCALL_CHECK_TEXT_INNER(text) #text
#define WARPCALL_CHECK_TEXT(text) WARPCALL_CHECK_TEXT_INNER(text)

// Checks `expression` in every build; for conditions that memory safety depends on. Evaluates the
// values that follow it only when it is false.
#define WARPCALL_CHECK(expression, ...)                                                         \
  do {                                                                                          \
    if (!(expression)) [[unlikely]]                                                             \
      ::warpcall::check_internal::Fail(__FILE__ ":" WARPCALL_CHECK_TEXT(__LINE__), #expression, \
                                       #__VA_ARGS__ __VA_OPT__(, ) __VA_ARGS__);                \
  } while (false)

// Like WARPCALL_CHECK in debug, sanitizer and fuzz builds (without NDEBUG, or with
// WARPCALL_DCHECKS). Other builds compile its operands and evaluate none of them.
#if !defined(NDEBUG) || defined(WARPCALL_DCHECKS)
#define WARPCALL_DCHECK_IS_ON 1
#define WARPCALL_DCHECK(...) WARPCALL_CHECK(__VA_ARGS__)
#else
#define WARPCALL_DCHECK_IS_ON 0
#define WARPCALL_DCHECK(...)                \
  do {                                      \
    if (false) WARPCALL_CHECK(__VA_ARGS__); \
  } while (false)
#endif
