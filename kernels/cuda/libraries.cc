#include "kernels/cuda/libraries.h"

#include "kernels/compiled/compiler.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {

Libraries::Libraries(const std::string& compile_cache)
    : compiler_(std::make_unique<compiled::Compiler>(compile_cache)) {
  LoadCublasLt().status().IgnoreError();  // rows give the reason in their `supports`
  LoadCudnn().status().IgnoreError();
}

Libraries::~Libraries() {
  absl::MutexLock lock(&mutex_);
  if (cublas_lt_ != nullptr) (*LoadCublasLt())->Destroy(cublas_lt_);
}

absl::StatusOr<cublasLtHandle_t> Libraries::CublasLt() {
  ASSIGN_OR_RETURN(const CublasLtApi* const api, LoadCublasLt());
  absl::MutexLock lock(&mutex_);
  if (cublas_lt_ == nullptr)
    RETURN_IF_ERROR(api->ToStatus(api->Create(&cublas_lt_), "creating a cuBLASLt handle"));
  return cublas_lt_;
}

}  // namespace warpcall::cuda
