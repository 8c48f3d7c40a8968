// The first byte chooses the origin of the file: the input as it is, or a header's text with the
// right lengths before it, so that the parser gets past them.
#include <sys/mman.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/npy_header.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/targets.h"
#include "warpcall/npy.h"

namespace warpcall::testing {
namespace {

constexpr int64_t kDataBytesMax = 64 << 10;

enum Choice : uint8_t { kMadeUp = 1, kUint16IsBfloat16 = 2, kVersion2 = 4, kDataFit = 8 };

// Bytes for the array that the header describes, whatever its elements are.
std::string DataFor(absl::string_view text, size_t element_bytes) {
  const absl::StatusOr<client::NpyHeader> header = client::ParseNpyHeader(text);
  if (!header.ok()) return "";
  const absl::StatusOr<int64_t> bytes = client::ByteCount(DataType::kFloat16, header->shape);
  if (!bytes.ok() || *bytes > kDataBytesMax) return "";
  return std::string(static_cast<size_t>(*bytes) / 2 * element_bytes, 'd');
}

std::string MadeUpFile(uint8_t choice, FuzzInput* input) {
  const auto text_bytes = static_cast<size_t>(input->Byte());
  const std::string text(input->Take(text_bytes));
  std::string file("\x93NUMPY", 6);
  const bool version2 = (choice & kVersion2) != 0;
  file.append({static_cast<char>(version2 ? 2 : 1), '\0', static_cast<char>(text.size()), '\0'});
  if (version2) file.append(2, '\0');
  absl::StrAppend(&file, text);
  if ((choice & kDataFit) == 0) return absl::StrCat(file, input->Rest());
  const bool float32 = absl::StrContains(text, "f4") || absl::StrContains(text, "float32");
  return file + DataFor(text, float32 ? 4 : 2);
}

// The rows' elements as a file in Fortran's order has them.
std::string ColumnMajor(absl::string_view data, absl::Span<const int64_t> shape,
                        size_t element_bytes) {
  const size_t count = data.size() / element_bytes;
  std::string file(data.size(), '\0');
  for (size_t i = 0; i < count; ++i) {
    size_t rest = i, place = 0, stride = count;
    for (size_t k = shape.size(); k-- > 0; rest /= static_cast<size_t>(shape[k])) {
      stride /= static_cast<size_t>(shape[k]);
      place += rest % static_cast<size_t>(shape[k]) * stride;
    }
    file.replace(place * element_bytes, element_bytes, data.data() + i * element_bytes,
                 element_bytes);
  }
  return file;
}

// The order that the file's header states, if there is one.
bool InFortranOrder(absl::string_view file) {
  const size_t begin = file.size() > 6 && file[6] == 1 ? 10 : 12;
  if (file.size() < begin) return false;
  size_t bytes = 0;
  for (size_t i = begin; i-- > 8;) bytes = bytes << 8 | static_cast<unsigned char>(file[i]);
  const absl::StatusOr<client::NpyHeader> header =
      client::ParseNpyHeader(file.substr(begin, bytes));
  return header.ok() && header->fortran_order;
}

std::string CheckTensor(const client::Tensor& tensor, absl::string_view file) {
  const bool fortran_order = InFortranOrder(file);
  const absl::StatusOr<int64_t> bytes = client::ByteCount(tensor.data_type(), tensor.shape());
  if (!bytes.ok()) return absl::StrCat("its shape is none: ", bytes.status().ToString());
  const absl::string_view data(tensor.data().data(), tensor.data().size());
  if (static_cast<int64_t>(data.size()) != *bytes)
    return absl::StrCat(data.size(), " bytes of data where its shape has ", *bytes);
  const std::string in_file =
      fortran_order ? ColumnMajor(data, tensor.shape(), ElementBytes(tensor.data_type()))
                    : std::string(data);
  if (!absl::EndsWith(file, in_file)) return "its data are not those at the end of the file";
  if (data.size() + 10 > file.size()) return "its data begin before the header's end";
  return "";
}

std::string CheckHeader(absl::string_view text) {
  const absl::StatusOr<client::NpyHeader> header = client::ParseNpyHeader(text);
  if (!header.ok()) return "";
  const bool one = header->shape.size() == 1;
  const absl::string_view quote = absl::StrContains(header->descr, '\'') ? "\"" : "'";
  const std::string written =
      absl::StrCat("{'descr': ", quote, header->descr, quote,
                   ", 'fortran_order': ", header->fortran_order ? "True" : "False", ", 'shape': (",
                   absl::StrJoin(header->shape, ", "), one ? ",)}" : ")}");
  const absl::StatusOr<client::NpyHeader> again = client::ParseNpyHeader(written);
  if (!again.ok()) return absl::StrCat(written, ": ", again.status().ToString());
  const bool same = again->descr == header->descr && again->shape == header->shape &&
                    again->fortran_order == header->fortran_order;
  return same ? "" : absl::StrCat("read differently as ", written);
}

}  // namespace

std::string FuzzNpy(absl::string_view input) {
  FuzzInput decisions(input);
  const uint8_t choice = decisions.Byte();
  const std::string file =
      (choice & kMadeUp) != 0 ? MadeUpFile(choice, &decisions) : std::string(decisions.Rest());
  if (const std::string wrong = CheckHeader(file.substr(std::min<size_t>(file.size(), 10)));
      !wrong.empty())
    return wrong;
  const int descriptor = memfd_create("npy", MFD_CLOEXEC);
  if (write(descriptor, file.data(), file.size()) != static_cast<ssize_t>(file.size()))
    return "no file";
  const absl::StatusOr<client::Tensor> tensor =
      client::ReadNpy(absl::StrCat("/proc/self/fd/", descriptor),
                      {.uint16_is_bfloat16 = (choice & kUint16IsBfloat16) != 0});
  close(descriptor);
  if (tensor.ok()) return CheckTensor(*tensor, file);
  return absl::IsInvalidArgument(tensor.status()) ? "" : tensor.status().ToString();
}

}  // namespace warpcall::testing
