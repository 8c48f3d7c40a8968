// A tensor as the client sends and receives it: type, shape, and bytes that it owns or borrows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/common/data_type.h"
#include "warpcall/tensor_view.h"

namespace warpcall::client {

// Bytes of a tensor of this type and shape. INVALID_ARGUMENT when a dimension is negative or the
// product overflows an int64.
absl::StatusOr<int64_t> ByteCount(DataType data_type, absl::Span<const int64_t> shape);

struct TensorSpec {
  DataType data_type = DataType::kFloat32;
  std::vector<int64_t> shape;

  bool operator==(const TensorSpec& other) const {
    return data_type == other.data_type && shape == other.shape;
  }
};

// Cheap to copy: copies share the bytes, which nobody changes.
class Tensor {
 public:
  Tensor() = default;

  // `data` are little-endian and row-major; `owner` keeps them alive for as long as anyone, gRPC's
  // transport included, needs them. The server refuses data that do not fit the shape.
  Tensor(DataType data_type, std::vector<int64_t> shape, absl::Span<const char> data,
         std::shared_ptr<const void> owner);

  // The caller keeps `data` alive and unchanged until every call that uses this tensor or a copy of
  // it has returned; no call returns before the transport has let go of them.
  static Tensor Borrow(DataType data_type, std::vector<int64_t> shape, absl::Span<const char> data);

  // A tensor that owns `values`: of float, Float16 or BFloat16.
  template <typename T>
  static Tensor From(std::vector<int64_t> shape, std::vector<T> values);
  static Tensor FromFloats(std::vector<int64_t> shape, std::vector<float> values) {
    return From(std::move(shape), std::move(values));
  }
  // Each of `values` rounded to `data_type`, to nearest with ties to even.
  static Tensor FromFloats(DataType data_type, std::vector<int64_t> shape,
                           absl::Span<const float> values);

  DataType data_type() const { return data_type_; }
  absl::Span<const int64_t> shape() const { return shape_; }
  absl::Span<const char> data() const { return data_; }
  // Null when the bytes are borrowed.
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // The elements as float, exactly, whatever their type: a copy.
  std::vector<float> ToFloats() const;
  // The elements as they are, without a copy: T is float, Float16 or BFloat16. INVALID_ARGUMENT
  // unless that is the tensor's type. Valid for as long as this tensor or a copy lives.
  template <typename T>
  absl::StatusOr<TensorView<T>> View() const {
    if (data_type_ != DataTypeOf<T>()) return OtherType(DataTypeOf<T>());
    return TensorView<T>(data_);
  }

 private:
  absl::Status OtherType(DataType wanted) const;

  DataType data_type_ = DataType::kFloat32;
  std::vector<int64_t> shape_;
  absl::Span<const char> data_;
  std::shared_ptr<const void> owner_;
};

template <typename T>
Tensor Tensor::From(std::vector<int64_t> shape, std::vector<T> values) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  const absl::Span<const char> data(reinterpret_cast<const char*>(owner->data()),
                                    owner->size() * sizeof(T));
  return Tensor(DataTypeOf<T>(), std::move(shape), data, std::move(owner));
}

// Memory for a tensor to be filled in; not cleared, aligned for every data type. Null when there is
// none. From 4 MiB on it asks for huge pages: touching memory for the first time in pages of 4 KiB
// costs as much as copying into it.
std::shared_ptr<char[]> AllocateBytes(size_t bytes);

}  // namespace warpcall::client
