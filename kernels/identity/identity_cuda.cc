#include "kernels/identity/identity.h"

namespace warpcall {

std::vector<Implementation> IdentityCudaRows() {
  return {identity::VectorCopyRow(), identity::DeviceMemcpyRow(), identity::ElementPerThreadRow()};
}

}  // namespace warpcall
