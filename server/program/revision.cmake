# Writes kRevision into OUT, when it is not there already: the commit of SOURCE, with "-dirty" where files
# differ from it. Where SOURCE is no checkout it is the commit that the environment's WARPCALL_REVISION names, cut
# to as many digits; empty where that is no commit either, or there is no git.
set(revision "")
if("$ENV{WARPCALL_REVISION}" MATCHES "^[0-9a-f]+$")
  string(SUBSTRING "$ENV{WARPCALL_REVISION}" 0 12 revision)  # the whole, where that is shorter
endif()
if(EXISTS ${SOURCE}/.git)
  # A build must not keep anybody from using the checkout meanwhile.
  set(ENV{GIT_OPTIONAL_LOCKS} 0)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[#include "server/program/revision.h"

namespace warpcall {

const char kRevision[] = "@revision@";

}  // namespace warpcall
]])
