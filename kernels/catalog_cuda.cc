// The GPU implementations: one line per op.
#include "kernels/fault/fault.h"
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

void AddCudaKernels(Registry* registry) {
  registry->Add(IdentityOp(), IdentityCudaRows());
  registry->Add(GeluOp(), GeluCudaRows());
  registry->Add(SoftmaxOp(), SoftmaxCudaRows());
  registry->Add(MatmulOp(), MatmulCudaRows());
  registry->Add(LinearOp(), LinearCudaRows());
  registry->Add(LayernormOp(), LayernormCudaRows());
  registry->Add(RmsnormOp(), RmsnormCudaRows());
  registry->Add(FusedOp(), FusedCudaRows());
}

void AddFaultKernels(Registry* registry) { registry->Add(FaultOp(), FaultCudaRows()); }

}  // namespace warpcall
