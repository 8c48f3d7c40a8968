// Which version this program is.
#pragma once

namespace warpcall::cli {

// "0.1.0".
const char* ClientVersion();

}  // namespace warpcall::cli
