#include "warpcall/tensor.h"

#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/residence.h"
#include "proto/common/dispatch.h"

namespace warpcall::client {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
// Below two huge pages alignment would cost more than huge pages give.
constexpr size_t kHugeBytesMin = 2 * kHugePageBytes;

std::shared_ptr<char[]> AllocateHuge(size_t bytes) {
  constexpr std::align_val_t kAlignment{kHugePageBytes};
  auto* const memory = static_cast<char*>(::operator new[](bytes, kAlignment, std::nothrow));
  if (memory == nullptr) return nullptr;
  // Advice: where the kernel has no huge pages, ordinary ones do.
  (void)madvise(memory, bytes, MADV_HUGEPAGE);
  return std::shared_ptr<char[]>(memory,
                                 [](char* start) { ::operator delete[](start, kAlignment); });
}

}  // namespace

absl::StatusOr<int64_t> ByteCount(DataType data_type, absl::Span<const int64_t> shape) {
  // Zeros are left out of the first product: a shape that overflows is refused even when it is
  // empty, as the server does.
  int64_t bytes = static_cast<int64_t>(ElementBytes(data_type));
  bool empty = false;
  for (const int64_t dimension : shape) {
    if (dimension < 0)
      return absl::InvalidArgumentError(
          absl::StrCat("shape (", absl::StrJoin(shape, ", "), ") has a negative dimension"));
    empty |= dimension == 0;
    if (dimension > 0 && __builtin_mul_overflow(bytes, dimension, &bytes))
      return absl::InvalidArgumentError(absl::StrCat("shape (", absl::StrJoin(shape, ", "),
                                                     ") has more bytes than an int64 counts"));
  }
  return empty ? 0 : bytes;
}

Tensor::Tensor(DataType data_type, std::vector<int64_t> shape, absl::Span<const char> data,
               std::shared_ptr<const void> owner)
    : data_type_(data_type), shape_(std::move(shape)), data_(data), owner_(std::move(owner)) {}

Tensor Tensor::Borrow(DataType data_type, std::vector<int64_t> shape, absl::Span<const char> data) {
  return Tensor(data_type, std::move(shape), data, nullptr);
}

Tensor Tensor::FromFloats(DataType data_type, std::vector<int64_t> shape,
                          absl::Span<const float> values) {
  return DispatchDataType(data_type, [&]<typename T>(T) {
    std::vector<T> rounded(values.size());
    std::transform(values.begin(), values.end(), rounded.begin(), FromFloat<T>);
    return From(std::move(shape), std::move(rounded));
  });
}

Tensor Tensor::FromHandle(std::string handle, TensorSpec spec) {
  return Tensor(std::make_shared<Residence>(std::move(handle), std::move(spec)));
}

Tensor::Tensor(std::shared_ptr<Residence> residence)
    : data_type_(residence->spec().data_type),
      shape_(residence->spec().shape),
      residence_(std::move(residence)) {}

std::string Tensor::handle() const { return is_resident() ? residence_->handle() : ""; }

std::vector<float> Tensor::ToFloats() const {
  return DispatchDataType(data_type_, [&]<typename T>(T) {
    const TensorView<T> elements(data_);
    std::vector<float> floats(elements.size());
    std::transform(elements.begin(), elements.end(), floats.begin(),
                   [](T element) { return ToFloat(element); });
    return floats;
  });
}

absl::Status Tensor::OtherType(DataType wanted) const {
  return absl::InvalidArgumentError(
      absl::StrCat("the tensor is ", DataTypeName(data_type_), ", not ", DataTypeName(wanted)));
}

std::shared_ptr<char[]> AllocateBytes(size_t bytes) {
  if (bytes >= kHugeBytesMin) return AllocateHuge(bytes);
  return std::shared_ptr<char[]>(new (std::nothrow) char[bytes]);
}

}  // namespace warpcall::client
