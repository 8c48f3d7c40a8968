#include "client/cli/common/version.h"

namespace warpcall::cli {

const char* ClientVersion() { return WARPCALL_VERSION; }

}  // namespace warpcall::cli
