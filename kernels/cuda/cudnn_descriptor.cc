#include "kernels/cuda/cudnn_descriptor.h"

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {

absl::StatusOr<CudnnDescriptor> CudnnDescriptor::Create(cudnnBackendDescriptorType_t type,
                                                        const char* what) {
  WARPCALL_DCHECK(what != nullptr);
  ASSIGN_OR_RETURN(const CudnnApi* const api, LoadCudnn());
  cudnnBackendDescriptor_t descriptor = nullptr;
  RETURN_IF_ERROR(api->ToStatus(api->BackendCreateDescriptor(type, &descriptor),
                                absl::StrCat(what, ": creating its descriptor")));
  return CudnnDescriptor(api, descriptor, what);
}

CudnnDescriptor& CudnnDescriptor::operator=(CudnnDescriptor&& other) noexcept {
  std::swap(api_, other.api_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(what_, other.what_);
  return *this;
}

CudnnDescriptor::~CudnnDescriptor() {
  if (descriptor_ != nullptr) api_->BackendDestroyDescriptor(descriptor_);
}

absl::Status CudnnDescriptor::SetAny(cudnnBackendAttributeName_t name,
                                     cudnnBackendAttributeType_t type, int64_t count,
                                     const void* values) {
  const cudnnStatus_t status = api_->BackendSetAttribute(descriptor_, name, type, count, values);
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  return api_->ToStatus(status,
                        absl::StrCat(what_, ": setting attribute ", static_cast<int>(name)));
}

absl::Status CudnnDescriptor::Finalize() {
  const cudnnStatus_t status = api_->BackendFinalize(descriptor_);
  if (status == CUDNN_STATUS_SUCCESS) return absl::OkStatus();
  return api_->ToStatus(status, absl::StrCat(what_, ": finalizing"));
}

absl::StatusOr<int64_t> CudnnDescriptor::GetInt64(cudnnBackendAttributeName_t name) const {
  int64_t value = 0;
  int64_t count = 0;
  RETURN_IF_ERROR(api_->ToStatus(
      api_->BackendGetAttribute(descriptor_, name, CUDNN_TYPE_INT64, 1, &count, &value),
      absl::StrCat(what_, ": asking for attribute ", static_cast<int>(name))));
  return value;
}

absl::StatusOr<int64_t> CudnnDescriptor::GetDescriptors(
    cudnnBackendAttributeName_t name, absl::Span<cudnnBackendDescriptor_t> descriptors) const {
  int64_t count = 0;
  RETURN_IF_ERROR(
      api_->ToStatus(api_->BackendGetAttribute(descriptor_, name, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               static_cast<int64_t>(descriptors.size()), &count,
                                               descriptors.data()),
                     absl::StrCat(what_, ": asking for attribute ", static_cast<int>(name))));
  return count;
}

}  // namespace warpcall::cuda
