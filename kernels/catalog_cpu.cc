// The CPU implementations that a build without a GPU serves: one line per op.
#include "kernels/catalog_folders.h"
#include "kernels/fault/broken.h"
#include "kernels/fault/held.h"
#include "kernels/fault/picky.h"
#include "kernels/fused/fused.h"
#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "kernels/layernorm/layernorm.h"
#include "kernels/linear/linear.h"
#include "kernels/matmul/matmul.h"
#include "kernels/registry.h"
#include "kernels/rmsnorm/rmsnorm.h"
#include "kernels/softmax/softmax.h"

namespace warpcall {

void AddCpuKernels(Registry* registry) {
  registry->Add(IdentityOp(), IdentityCpuRows());
  registry->Add(GeluOp(), GeluCpuRows());
  registry->Add(SoftmaxOp(), SoftmaxCpuRows());
  registry->Add(MatmulOp(), MatmulCpuRows());
  registry->Add(FusedOp(), FusedCpuRows());
  registry->Add(LinearOp(), LinearCpuRows());
  registry->Add(LayernormOp(), LayernormCpuRows());
  registry->Add(RmsnormOp(), RmsnormCpuRows());
  AddKernelsOfFolders(registry);
}

void AddBrokenKernels(Registry* registry) {
  registry->Add(BrokenOp(), BrokenCpuRows());
  registry->Add(HeldOp(), HeldCpuRows());
  registry->Add(PickyOp(), PickyCpuRows());
}

}  // namespace warpcall
