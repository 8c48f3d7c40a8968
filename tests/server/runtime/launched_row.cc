#include "tests/server/runtime/launched_row.h"

#include <cuda_runtime_api.h>

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/cuda/cuda_status.h"
#include "proto/common/status_macros.h"
#include "server/runtime/plan_site.h"

namespace warpcall::testing {
namespace {

// 0.0115 in float32 and bfloat16, 1.06 in float16.
constexpr int kInputByte = 0x3C;

absl::Status Usage(absl::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat(why,
                   "; takes KERNEL IMPLEMENTATION float32|float16|bfloat16 SHAPE [SHAPE...], "
                   "SHAPE as 64x32"));
}

}  // namespace

absl::StatusOr<RowRequest> ParseRowRequest(const std::vector<std::string>& words) {
  if (words.size() < 4) return Usage(absl::StrCat(words.size(), " words are too few"));
  RowRequest request = {words[0], words[1], DataType::kFloat32, {}};
  bool known = false;
  for (const DataType type : kDataTypes) {
    if (words[2] != DataTypeName(type)) continue;
    request.data_type = type;
    known = true;
  }
  if (!known) return Usage(absl::StrCat("\"", words[2], "\" is no data type"));
  for (size_t i = 3; i < words.size(); ++i) {
    Dims& dims = request.shapes.emplace_back();
    for (absl::string_view size : absl::StrSplit(words[i], 'x')) {
      int64_t value;
      if (!absl::SimpleAtoi(size, &value)) return Usage(absl::StrCat("\"", size, "\" is no size"));
      dims.push_back(value);
    }
  }
  return request;
}

std::vector<std::string> WordsOf(const RowRequest& request) {
  std::vector<std::string> words = {request.kernel, request.implementation,
                                    DataTypeName(request.data_type)};
  for (const Dims& dims : request.shapes) words.push_back(absl::StrJoin(dims, "x"));
  return words;
}

absl::StatusOr<std::unique_ptr<LaunchedRow>> LaunchedRow::Create(CudaDevice* device,
                                                                 const RowRequest& request) {
  std::unique_ptr<LaunchedRow> row(new LaunchedRow(device));
  RETURN_IF_ERROR(row->Choose(request));
  RETURN_IF_ERROR(row->Allocate());
  RETURN_IF_ERROR(row->MakePlan());
  RETURN_IF_ERROR(row->Synchronize());
  return row;
}

absl::Status LaunchedRow::Choose(const RowRequest& request) {
  AddCudaKernels(&registry_);
  const Kernel* kernel;
  ASSIGN_OR_RETURN(kernel, registry_.Find(request.kernel));
  std::vector<TensorSpec> specs;
  for (const Dims& dims : request.shapes) specs.push_back({request.data_type, dims});
  ASSIGN_OR_RETURN(problem_, MakeProblem(*kernel->op, specs, {}));
  ASSIGN_OR_RETURN(
      row_, registry_.Select(*kernel, request.implementation, problem_, device_->properties()));
  return absl::OkStatus();
}

absl::Status LaunchedRow::Allocate() {
  ASSIGN_OR_RETURN(stream_, device_->CreateStream());
  RETURN_IF_ERROR(stream_->BindThread());
  const auto allocate = [this](size_t bytes) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(Buffer buffer, stream_->AllocateMemory(bytes));
    memory_.push_back(std::move(buffer));
    return memory_.back().data();
  };
  for (const TensorSpec& spec : problem_.inputs) {
    ASSIGN_OR_RETURN(void* const data, allocate(spec.bytes()));
    const auto stream = static_cast<cudaStream_t>(stream_->native_handle());
    RETURN_IF_ERROR(cuda::ToStatus(cudaMemsetAsync(data, kInputByte, spec.bytes(), stream),
                                   "filling an input"));
    operands_.inputs.push_back(data);
  }
  for (const TensorSpec& spec : problem_.outputs) {
    ASSIGN_OR_RETURN(void* const data, allocate(spec.bytes()));
    operands_.outputs.push_back(data);
  }
  return absl::OkStatus();
}

absl::Status LaunchedRow::MakePlan() {
  const auto workspace = [this](size_t bytes) -> absl::StatusOr<void*> {
    ASSIGN_OR_RETURN(Buffer buffer, stream_->AllocateMemory(bytes));
    memory_.push_back(std::move(buffer));
    return memory_.back().data();
  };
  ASSIGN_OR_RETURN(plan_, MakePlanOn({stream_.get(), &device_->properties(), &operands_, workspace},
                                     row_->implementation, problem_));
  ASSIGN_OR_RETURN(workspace_, workspace(plan_->traits().workspace_bytes));
  return absl::OkStatus();
}

absl::Status LaunchedRow::Launch() {
  RETURN_IF_ERROR(stream_->BindThread());
  return plan_->Enqueue(operands_, {.stream = stream_->native_handle(), .workspace = workspace_});
}

absl::StatusOr<LaunchShape> LaunchedRow::Shape() const { return plan_->shape(); }

}  // namespace warpcall::testing
