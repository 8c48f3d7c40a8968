// What Python says of a call, as the C++ client takes it.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "proto/common/data_type.h"
#include "warpcall/call.h"
#include "warpcall/tensor.h"

namespace warpcall::fast {

// An object's bytes, by the buffer protocol. Made and destroyed with the GIL; stays where it is, as
// a Py_buffer may point into itself.
class LentBytes {
 public:
  LentBytes() = default;
  ~LentBytes();
  LentBytes(const LentBytes&) = delete;
  LentBytes& operator=(const LentBytes&) = delete;

  // `flags` of PyObject_GetBuffer. False, with Python's error set, when the object does not lend
  // such bytes. Once.
  bool Take(nanobind::handle object, int flags);

  const Py_buffer& view() const { return view_; }
  absl::Span<char> bytes() const {
    return {static_cast<char*>(view_.buf), static_cast<size_t>(view_.len)};
  }

 private:
  Py_buffer view_ = {};
};

// The inputs of a call, where they lie. Made and destroyed with the GIL.
class Inputs {
 public:
  // Adds what is sent as it lies: a C-contiguous array of float32 or float16 with a dimension at
  // least, by the buffer protocol, or by DLPack and then of bfloat16, too. False for anything else.
  bool AddArray(nanobind::handle array);
  // Adds an Operand of warpcall's: (number of its data type, shape, array). Throws what Python does
  // for anything else.
  void AddOperand(const nanobind::tuple& operand);

  int64_t bytes() const { return bytes_; }
  // For as long as this lives.
  std::vector<client::Tensor> TakeTensors() { return std::move(tensors_); }

 private:
  using HostArray = nanobind::ndarray<nanobind::ro, nanobind::c_contig, nanobind::device::cpu>;

  bool AddBuffer(nanobind::handle array);
  bool AddDlpack(nanobind::handle array);
  void Add(DataType data_type, std::vector<int64_t> shape, absl::Span<const char> data);

  std::vector<client::Tensor> tensors_;
  std::vector<std::unique_ptr<LentBytes>> buffers_;
  std::vector<HostArray> arrays_;
  int64_t bytes_ = 0;
};

// Throws what Python does for what is no str, or none that UTF-8 can say.
std::string ReadText(nanobind::handle text);

// Nothing when a value is none of bool, int of 64 bits, float and str.
std::optional<std::map<std::string, client::AttributeValue>> ReadAttributes(
    const nanobind::dict& attributes);

}  // namespace warpcall::fast
