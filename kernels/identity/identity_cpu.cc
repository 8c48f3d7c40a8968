#include "kernels/identity/identity.h"

namespace warpcall {

std::vector<Implementation> IdentityCpuRows() {
  return {identity::ParallelCopyRow(), identity::OnednnReorderRow(), identity::ElementLoopRow(),
          identity::PlainCopyRow()};
}

}  // namespace warpcall
