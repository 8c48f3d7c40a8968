# Writes kRevision into OUT, when it is not there already: the commit of SOURCE, with "-dirty" where files
# differ from it; empty where SOURCE is no checkout, or there is no git.
set(revision "")
if(EXISTS ${SOURCE}/.git)
  # A build must not keep anybody from using the checkout meanwhile.
  set(ENV{GIT_OPTIONAL_LOCKS} 0)
  execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
file(CONFIGURE OUTPUT ${OUT} @ONLY CONTENT [[#include "server/revision.h"

namespace warpcall {

const char kRevision[] = "@revision@";

}  // namespace warpcall
]])
