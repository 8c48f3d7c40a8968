#include "client/python/fast/arguments.h"

#include <bit>
#include <utility>

#include "absl/strings/string_view.h"

namespace nb = nanobind;

namespace warpcall::fast {
namespace {

static_assert(std::endian::native == std::endian::little, "arrays are sent as they lie");

// By the struct module's letters, as arrays of this machine's byte order say them.
std::optional<DataType> TypeOfFormat(absl::string_view format) {
  if (format == "f" || format == "<f") return DataType::kFloat32;
  if (format == "e" || format == "<e") return DataType::kFloat16;
  return std::nullopt;
}

std::optional<DataType> TypeOf(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  if (code == nb::dlpack::dtype_code::Float && dtype.bits == 32) return DataType::kFloat32;
  if (code == nb::dlpack::dtype_code::Float && dtype.bits == 16) return DataType::kFloat16;
  if (code == nb::dlpack::dtype_code::Bfloat && dtype.bits == 16) return DataType::kBFloat16;
  return std::nullopt;
}

// Nothing for what is none of its types.
std::optional<client::AttributeValue> ReadAttribute(nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.is(Py_True);
  if (PyFloat_Check(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  if (PyUnicode_Check(value.ptr())) return ReadText(value);
  if (!PyLong_Check(value.ptr())) return std::nullopt;
  int overflow = 0;
  const int64_t integer = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0) return std::nullopt;
  return integer;
}

}  // namespace

LentBytes::~LentBytes() {
  if (view_.obj != nullptr) PyBuffer_Release(&view_);
}

bool LentBytes::Take(nb::handle object, int flags) {
  return PyObject_GetBuffer(object.ptr(), &view_, flags) == 0;
}

bool Inputs::AddArray(nb::handle array) {
  if (PyObject_CheckBuffer(array.ptr())) return AddBuffer(array);
  // Asked of the type, as Python does: an array of another kind may be slow to say that it is none.
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(array.ptr()));
  return PyObject_HasAttrString(type, "__dlpack__") && AddDlpack(array);
}

bool Inputs::AddBuffer(nb::handle array) {
  auto lent = std::make_unique<LentBytes>();
  if (!lent->Take(array, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS)) {
    PyErr_Clear();
    return false;
  }
  const Py_buffer& view = lent->view();
  const auto data_type = TypeOfFormat(view.format == nullptr ? "B" : view.format);
  if (!data_type.has_value() || view.ndim < 1) return false;
  Add(*data_type, {view.shape, view.shape + view.ndim}, lent->bytes());
  buffers_.push_back(std::move(lent));
  return true;
}

bool Inputs::AddDlpack(nb::handle array) {
  HostArray lent;
  if (!nb::try_cast(array, lent, /*convert=*/false)) return false;
  const auto data_type = TypeOf(lent.dtype());
  if (!data_type.has_value() || lent.ndim() < 1) return false;
  Add(*data_type, {lent.shape_ptr(), lent.shape_ptr() + lent.ndim()},
      {static_cast<const char*>(lent.data()), lent.nbytes()});
  arrays_.push_back(std::move(lent));
  return true;
}

void Inputs::AddOperand(const nb::tuple& operand) {
  std::vector<int64_t> shape;
  for (const nb::handle size : nb::cast<nb::tuple>(operand[1]))
    shape.push_back(nb::cast<int64_t>(size));
  auto lent = std::make_unique<LentBytes>();
  if (!lent->Take(operand[2], PyBUF_SIMPLE)) throw nb::python_error();
  Add(static_cast<DataType>(nb::cast<int>(operand[0])), std::move(shape), lent->bytes());
  buffers_.push_back(std::move(lent));
}

void Inputs::Add(DataType data_type, std::vector<int64_t> shape, absl::Span<const char> data) {
  bytes_ += static_cast<int64_t>(data.size());
  tensors_.push_back(client::Tensor::Borrow(data_type, std::move(shape), data));
}

std::string ReadText(nb::handle text) {
  Py_ssize_t bytes = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &bytes);
  if (data == nullptr) throw nb::python_error();
  return {data, static_cast<size_t>(bytes)};
}

std::optional<std::map<std::string, client::AttributeValue>> ReadAttributes(
    const nb::dict& attributes) {
  std::map<std::string, client::AttributeValue> read;
  for (const auto [name, value] : attributes) {
    std::optional<client::AttributeValue> attribute = ReadAttribute(value);
    if (!attribute.has_value()) return std::nullopt;
    read.emplace(ReadText(name), *std::move(attribute));
  }
  return read;
}

}  // namespace warpcall::fast
