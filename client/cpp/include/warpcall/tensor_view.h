// The elements of a tensor where they lie: span-like, but read one by one, for bytes that came from
// a file or a network need not be aligned.
//
//   ASSIGN_OR_RETURN(const TensorView<BFloat16> y, result->outputs[0].View<BFloat16>());
//   for (const BFloat16 element : y) sum += ToFloat(element);
//
// kernels/common/half.h has the types of 16 bits, ToFloat, and FromFloat, which rounds to nearest
// with ties to even.
#pragma once

#include <compare>
#include <cstddef>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/types/span.h"
#include "proto/common/data_type.h"
#include "proto/common/half.h"

namespace warpcall::client {

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

// Cheap to copy; valid for as long as the bytes are.
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

}  // namespace warpcall::client
