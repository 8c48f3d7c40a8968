// A tensor as the client sends and receives it: type, shape, and bytes that it owns or borrows.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "proto/common/data_type.h"
#include "proto/common/half.h"

namespace warpcall::client {

// Returns the bytes of a tensor of this type and shape. INVALID_ARGUMENT if a dimension is negative
// or the product overflows an int64.
absl::StatusOr<int64_t> ByteCount(DataType data_type, absl::Span<const int64_t> shape);

struct TensorSpec {
  DataType data_type = DataType::kFloat32;
  std::vector<int64_t> shape;

  bool operator==(const TensorSpec& other) const {
    return data_type == other.data_type && shape == other.shape;
  }
};

// The data type whose elements are T: float, Float16 or BFloat16.
template <typename T>
constexpr DataType DataTypeOf();
template <>
constexpr DataType DataTypeOf<float>() {
  return DataType::kFloat32;
}
template <>
constexpr DataType DataTypeOf<Float16>() {
  return DataType::kFloat16;
}
template <>
constexpr DataType DataTypeOf<BFloat16>() {
  return DataType::kBFloat16;
}

// The elements of a tensor where they lie: span-like, but read one by one, because bytes from a
// file or a network need not be aligned. Cheap to copy; valid for as long as the bytes are.
//
//   ASSIGN_OR_RETURN(const TensorView<BFloat16> y, result->outputs[0].View<BFloat16>());
//   for (const BFloat16 element : y) sum += ToFloat(element);
//
// proto/common/half.h has the types of 16 bits, ToFloat, and FromFloat, which rounds to nearest
// with ties to even.
template <typename T>
class TensorView {
 public:
  using value_type = T;

  // Elements are values that it reads: there is nothing to point at.
  class const_iterator {
   public:
    using iterator_category = std::random_access_iterator_tag;
    using value_type = T;
    using difference_type = ptrdiff_t;
    using pointer = void;
    using reference = T;

    const_iterator() = default;
    explicit const_iterator(const char* at) : at_(at) {}

    T operator*() const {
      T element;
      std::memcpy(&element, at_, sizeof(T));
      return element;
    }
    T operator[](ptrdiff_t n) const { return *(*this + n); }
    const_iterator& operator+=(ptrdiff_t n) {
      at_ += n * static_cast<ptrdiff_t>(sizeof(T));
      return *this;
    }
    const_iterator& operator-=(ptrdiff_t n) { return *this += -n; }
    const_iterator& operator++() { return *this += 1; }
    const_iterator& operator--() { return *this -= 1; }
    const_iterator operator++(int) { return std::exchange(*this, *this + 1); }
    const_iterator operator--(int) { return std::exchange(*this, *this - 1); }
    friend const_iterator operator+(const_iterator i, ptrdiff_t n) { return i += n; }
    friend const_iterator operator+(ptrdiff_t n, const_iterator i) { return i += n; }
    friend const_iterator operator-(const_iterator i, ptrdiff_t n) { return i -= n; }
    friend ptrdiff_t operator-(const_iterator a, const_iterator b) {
      return (a.at_ - b.at_) / static_cast<ptrdiff_t>(sizeof(T));
    }
    friend bool operator==(const_iterator, const_iterator) = default;
    friend auto operator<=>(const_iterator, const_iterator) = default;

   private:
    const char* at_ = nullptr;
  };
  using iterator = const_iterator;

  TensorView() = default;
  // Ignores bytes behind the last whole element.
  explicit TensorView(absl::Span<const char> bytes) : bytes_(bytes) {}

  size_t size() const { return bytes_.size() / sizeof(T); }
  bool empty() const { return size() == 0; }
  // `index` is below size().
  T operator[](size_t index) const { return begin()[static_cast<ptrdiff_t>(index)]; }
  const_iterator begin() const { return const_iterator(bytes_.data()); }
  const_iterator end() const { return begin() + static_cast<ptrdiff_t>(size()); }

 private:
  absl::Span<const char> bytes_;
};

class Residence;

// Cheap to copy: copies share the bytes, which nobody changes.
class Tensor {
 public:
  Tensor() = default;

  // `data` are little-endian and row-major; `owner` keeps them alive for as long as anyone, gRPC's
  // transport included, needs them. Calls refuse data that do not fit the shape: INVALID_ARGUMENT.
  Tensor(DataType data_type, std::vector<int64_t> shape, absl::Span<const char> data,
         std::shared_ptr<const void> owner);

  // The caller keeps `data` alive and unchanged until every call that uses this tensor or a copy of
  // it has returned; no call returns before the transport has let go of them.
  static Tensor Borrow(DataType data_type, std::vector<int64_t> shape, absl::Span<const char> data);

  // Returns a tensor that owns `values`. T is float, Float16 or BFloat16.
  template <typename T>
  static Tensor From(std::vector<int64_t> shape, std::vector<T> values);
  static Tensor FromFloats(std::vector<int64_t> shape, std::vector<float> values) {
    return From(std::move(shape), std::move(values));
  }
  // Rounds each of `values` to `data_type`, to nearest with ties to even.
  static Tensor FromFloats(DataType data_type, std::vector<int64_t> shape,
                           absl::Span<const float> values);
  // Returns a tensor that is on the server (Client::Put, CallOptions::keep_outputs) and has no
  // bytes here. Without `spec` its type and shape are known to the server alone: the shape is
  // empty.
  static Tensor FromHandle(std::string handle, TensorSpec spec = {});
  // Likewise, of a tensor that may be put again under another handle.
  explicit Tensor(std::shared_ptr<Residence> residence);

  // True if the tensor is on the server: data() is empty whatever the shape.
  bool is_resident() const { return residence_ != nullptr; }
  // Returns the tensor's name on the server; empty if the tensor is here. The name changes when the
  // tensor is put again.
  std::string handle() const;
  const std::shared_ptr<Residence>& residence() const { return residence_; }

  DataType data_type() const { return data_type_; }
  absl::Span<const int64_t> shape() const { return shape_; }
  absl::Span<const char> data() const { return data_; }
  // Null when the bytes are borrowed.
  const std::shared_ptr<const void>& owner() const { return owner_; }

  // Returns a copy of the elements as float, which holds each type exactly.
  std::vector<float> ToFloats() const;
  // Returns the elements without a copy. T is float, Float16 or BFloat16; INVALID_ARGUMENT unless
  // it is the tensor's type. Valid for as long as this tensor or a copy of it lives.
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
  std::shared_ptr<Residence> residence_;  // null if the bytes are here
};

template <typename T>
Tensor Tensor::From(std::vector<int64_t> shape, std::vector<T> values) {
  auto owner = std::make_shared<const std::vector<T>>(std::move(values));
  const absl::Span<const char> data(reinterpret_cast<const char*>(owner->data()),
                                    owner->size() * sizeof(T));
  return Tensor(DataTypeOf<T>(), std::move(shape), data, std::move(owner));
}

// Allocates memory for a tensor; not cleared, aligned for every data type. Null if there is none.
// Uses huge pages from 4 MiB on: touching memory for the first time in pages of 4 KiB costs as much
// as copying into it.
std::shared_ptr<char[]> AllocateBytes(size_t bytes);

}  // namespace warpcall::client
