#include "kernels/cuda/tensor_map.h"

#include <limits>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "kernels/common/saturate.h"
#include "kernels/cuda/driver_function.h"
#include "proto/common/check.h"
#include "proto/common/status_macros.h"

namespace warpcall::cuda {
namespace {

// Coordinates are 32-bit and signed, and boxes may begin in a tensor and end beyond it.
constexpr int64_t kSizeMax = std::numeric_limits<int32_t>::max() - 1024;
constexpr int64_t kStrideBytesMax = (int64_t{1} << 40) - 16;

using Encode = decltype(&cuTensorMapEncodeTiled);
constexpr unsigned kEncodeVersion = 12000;

int64_t BytesOfElement(const MatrixStack& stack) {
  return static_cast<int64_t>(ElementBytes(stack.data_type));
}

CUtensorMapDataType TypeOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DataType::kBFloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DataType::kFloat32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  }
  AbortOnDataType(type);
}

}  // namespace

absl::Status CheckMap(const MatrixStack& stack) {
  WARPCALL_DCHECK(stack.row_elements * BytesOfElement(stack) % 16 == 0, stack.row_elements);
  for (const int64_t size : {stack.columns, stack.rows, stack.matrices})
    if (size > kSizeMax)
      return absl::UnimplementedError(absl::StrCat(
          "tensor maps take ", kSizeMax, " rows, columns and matrices at most, not ", size));
  const int64_t bytes =
      SaturatingMultiply(SaturatingMultiply(stack.rows, stack.row_elements), BytesOfElement(stack));
  if (bytes > kStrideBytesMax)
    return absl::UnimplementedError(absl::StrCat("tensor maps take matrices of ", kStrideBytesMax,
                                                 " bytes at most, not ", bytes));
  return absl::OkStatus();
}

absl::Status MakeMap(const MatrixStack& stack, const void* data, const MapBox& box,
                     CUtensorMap* map) {
  WARPCALL_DCHECK(CheckMap(stack).ok(), stack.columns, stack.rows, stack.matrices);
  WARPCALL_DCHECK(box.rows > 0 && box.rows <= 256, box.rows);
  WARPCALL_DCHECK(reinterpret_cast<uintptr_t>(data) % 16 == 0, data);
  WARPCALL_DCHECK(!box.swizzled || box.row_bytes == kMapRowBytes, box.row_bytes);
  static const absl::StatusOr<Encode>& encode = *new absl::StatusOr<Encode>(
      FindDriverFunction<Encode>("cuTensorMapEncodeTiled", kEncodeVersion));
  RETURN_IF_ERROR(encode.status());
  const auto unsigned64 = [](int64_t value) { return static_cast<cuuint64_t>(value); };
  const cuuint64_t sizes[] = {unsigned64(stack.columns), unsigned64(stack.rows),
                              unsigned64(stack.matrices)};
  const int64_t row_bytes = stack.row_elements * BytesOfElement(stack);
  const cuuint64_t strides[] = {unsigned64(row_bytes), unsigned64(stack.rows * row_bytes)};
  const cuuint32_t box_sizes[] = {
      static_cast<cuuint32_t>(box.row_bytes / ElementBytes(stack.data_type)),
      static_cast<cuuint32_t>(box.rows), 1};
  const cuuint32_t steps[] = {1, 1, 1};
  // The driver takes an address that may be written, and writes nothing there.
  const CUresult result =
      (*encode)(map, TypeOf(stack.data_type), 3, const_cast<void*>(data), sizes, strides, box_sizes,
                steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                box.swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE,
                box.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cuTensorMapEncodeTiled: error ", result, " for ",
                                          stack.matrices, " matrices of ", stack.rows, " x ",
                                          stack.columns, ", rows ", row_bytes, " bytes apart"));
}

}  // namespace warpcall::cuda
