// The version of this build, as CMake's project() has it.
#pragma once

namespace warpcall {

inline constexpr char kVersion[] = WARPCALL_VERSION;

}  // namespace warpcall
