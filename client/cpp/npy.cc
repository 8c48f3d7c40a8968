#include "warpcall/npy.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/complete_file.h"
#include "client/cpp/npy_cast.h"
#include "client/cpp/npy_header.h"
#include "client/cpp/npy_order.h"
#include "proto/common/status_macros.h"

namespace warpcall::client {
namespace {

static_assert(std::endian::native == std::endian::little, "files and tensors are little-endian");

constexpr absl::string_view kMagic("\x93NUMPY", 6);
constexpr size_t kVersionBytes = 2;
// The length of the header takes 2 bytes in version 1 and 4 from version 2 on.
constexpr size_t kLengthBytesMax = 4;
// A header of 64 dimensions has some 1500 bytes; NumPy itself refuses more than 10 000.
constexpr size_t kHeaderBytesMax = 10000;
// Data start at a multiple of this, as the format asks.
constexpr size_t kAlignmentBytes = 64;
// Below read(2)'s limit of 2^31 - 4096 a call.
constexpr size_t kReadBytesMax = size_t{1} << 30;
// Elements that are converted on their way, in pieces that stay in the cache.
constexpr int64_t kCastElements = 1 << 15;

class File {
 public:
  File(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  bool is_open() const { return descriptor_ >= 0; }
  const std::string& path() const { return path_; }

  absl::Status Error(absl::string_view doing) const {
    return absl::ErrnoToStatus(errno, absl::StrCat(doing, " ", path_));
  }
  absl::Status Invalid(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what));
  }

  // From here to its end; nothing for a pipe and the like, which do not know.
  absl::StatusOr<std::optional<int64_t>> BytesLeft() const {
    struct stat facts;
    if (fstat(descriptor_, &facts) != 0) return Error("reading");
    if (S_ISDIR(facts.st_mode)) return Invalid("a folder, not a file");
    const off_t place = S_ISREG(facts.st_mode) ? lseek(descriptor_, 0, SEEK_CUR) : -1;
    if (place < 0) return std::optional<int64_t>();
    return std::optional<int64_t>(std::max<int64_t>(facts.st_size - place, 0));
  }

  absl::Status Read(char* data, size_t bytes) const {
    while (bytes > 0) {
      const ssize_t got = read(descriptor_, data, std::min(bytes, kReadBytesMax));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return Error("reading");
      if (got == 0) return Invalid(absl::StrCat("the file ends ", bytes, " bytes too early"));
      data += got;
      bytes -= static_cast<size_t>(got);
    }
    return absl::OkStatus();
  }

  absl::Status ExpectEnd() const {
    char more;
    ssize_t got;
    do got = read(descriptor_, &more, 1);
    while (got < 0 && errno == EINTR);
    if (got < 0) return Error("reading");
    return got == 0 ? absl::OkStatus() : Invalid("there is more than its header says");
  }

 private:
  const std::string path_;
  const int descriptor_;
};

absl::StatusOr<DataType> TypeOf(const NpyHeader& header, const NpyReadOptions& options) {
  const std::string& descr = header.descr;
  const NpyElement* const element = FindNpyElement(descr);
  const absl::string_view name = element == nullptr ? "" : element->name;
  for (const DataType type : kDataTypes)  // ml_dtypes.bfloat16 is written as two unknown bytes
    if (name == DataTypeName(type)) return type;
  if (name == "uint16" && options.uint16_is_bfloat16) return DataType::kBFloat16;
  std::string message = absl::StrCat(
      "elements are '", descr, "'",
      name.empty() || name == descr ? "" : absl::StrCat(" (", name, ")"),
      "; taken are '<f4' (float32), '<f2' (float16), '<V2' (bfloat16 of ml_dtypes) and '<u2' "
      "(uint16) where it is declared to be bfloat16");
  if (!descr.empty() && descr.front() == '>')
    absl::StrAppend(&message, "; big-endian files are not taken");
  if (element != nullptr) absl::StrAppend(&message, "; ", options.cast_advice);
  return absl::InvalidArgumentError(message);
}

// How the elements of a file become those of a tensor.
struct Elements {
  DataType data_type = DataType::kFloat32;
  size_t file_bytes = 0;                // size of one element
  const NpyElement* convert = nullptr;  // null: copied unchanged
};

absl::StatusOr<Elements> ElementsOf(const NpyHeader& header, const NpyReadOptions& options) {
  const absl::StatusOr<DataType> type = TypeOf(header, options);
  if (!options.cast.has_value() || (type.ok() && *type == *options.cast)) {
    RETURN_IF_ERROR(type.status());
    return Elements{*type, ElementBytes(*type), nullptr};
  }
  const bool bits = type.ok() && *type == DataType::kBFloat16;  // '<u2' may be declared to be that
  const NpyElement* const element = FindNpyElement(bits ? "<V2" : header.descr);
  if (element == nullptr) return type.status();
  return Elements{*options.cast, element->bytes, element};
}

// Reads up to where the data begin; *data_offset is that place.
absl::StatusOr<NpyHeader> ReadHeader(const File& file, std::optional<int64_t> file_bytes,
                                     int64_t* data_offset) {
  char start[kMagic.size() + kVersionBytes];
  if (file_bytes.has_value() && *file_bytes < static_cast<int64_t>(sizeof start))
    return file.Invalid(absl::StrCat(*file_bytes, " bytes are too few for a .npy file"));
  RETURN_IF_ERROR(file.Read(start, sizeof start));
  if (absl::string_view(start, kMagic.size()) != kMagic) return file.Invalid("not a .npy file");
  const int major = static_cast<unsigned char>(start[kMagic.size()]);
  const int minor = static_cast<unsigned char>(start[kMagic.size() + 1]);
  if (major < 1 || major > 3 || minor != 0)
    return file.Invalid(
        absl::StrCat(".npy version ", major, ".", minor, "; taken are 1.0, 2.0 and 3.0"));

  const size_t length_bytes = major == 1 ? 2 : kLengthBytesMax;
  unsigned char length[kLengthBytesMax] = {};
  RETURN_IF_ERROR(file.Read(reinterpret_cast<char*>(length), length_bytes));
  size_t header_bytes = 0;
  for (size_t i = 0; i < length_bytes; ++i) header_bytes |= size_t{length[i]} << (8 * i);
  if (header_bytes > kHeaderBytesMax)
    return file.Invalid(absl::StrCat("the header has ", header_bytes, " bytes; at most ",
                                     kHeaderBytesMax, " are taken"));
  std::string text(header_bytes, '\0');
  RETURN_IF_ERROR(file.Read(text.data(), text.size()));
  *data_offset = static_cast<int64_t>(sizeof start + length_bytes + header_bytes);
  absl::StatusOr<NpyHeader> header = ParseNpyHeader(text);
  if (!header.ok()) return file.Invalid(header.status().message());
  return header;
}

std::string MakeHeader(const Tensor& tensor) {
  const char* descr = tensor.data_type() == DataType::kFloat32   ? "<f4"
                      : tensor.data_type() == DataType::kFloat16 ? "<f2"
                                                                 : "<V2";
  std::string text = absl::StrCat("{'descr': '", descr, "', 'fortran_order': False, 'shape': (",
                                  absl::StrJoin(tensor.shape(), ", "),
                                  tensor.shape().size() == 1 ? ",), }" : "), }");
  constexpr size_t kStartBytes = kMagic.size() + kVersionBytes + 2;
  // Spaces up to a newline that ends on the boundary.
  while ((kStartBytes + text.size() + 1) % kAlignmentBytes != 0) text.push_back(' ');
  text.push_back('\n');
  std::string header(kMagic);
  header.append(
      {'\x01', '\x00', static_cast<char>(text.size() & 0xFF), static_cast<char>(text.size() >> 8)});
  return header.append(text);
}

// The bytes of `count` elements, converted into `into`.
absl::Status ReadConverted(const File& file, const Elements& elements, int64_t count, char* into) {
  std::vector<char> piece(elements.file_bytes *
                          static_cast<size_t>(std::min(count, kCastElements)));
  const CastElements cast = elements.convert->To(elements.data_type);
  for (int64_t done = 0; done < count; done += kCastElements) {
    const int64_t now = std::min(count - done, kCastElements);
    RETURN_IF_ERROR(file.Read(piece.data(), elements.file_bytes * static_cast<size_t>(now)));
    cast(piece.data(), now, into + static_cast<size_t>(done) * ElementBytes(elements.data_type));
  }
  return absl::OkStatus();
}

// The elements of an array of this shape. INVALID_ARGUMENT when their bytes, in the file or in the
// tensor, overflow an int64.
absl::StatusOr<int64_t> CountElements(const Elements& elements, absl::Span<const int64_t> shape) {
  RETURN_IF_ERROR(ByteCount(elements.data_type, shape).status());
  constexpr DataType kTwoBytes = DataType::kFloat16;
  ASSIGN_OR_RETURN(const int64_t twice, ByteCount(kTwoBytes, shape));
  const int64_t count = twice / static_cast<int64_t>(ElementBytes(kTwoBytes));
  int64_t bytes;
  if (__builtin_mul_overflow(count, static_cast<int64_t>(elements.file_bytes), &bytes))
    return absl::InvalidArgumentError(absl::StrCat("shape (", absl::StrJoin(shape, ", "),
                                                   ") has more bytes than an int64 counts"));
  return count;
}

absl::StatusOr<std::shared_ptr<char[]>> Allocate(const File& file, size_t bytes) {
  std::shared_ptr<char[]> memory = AllocateBytes(bytes);
  if (memory != nullptr) return memory;
  return absl::ResourceExhaustedError(
      absl::StrCat(file.path(), ": no memory for ", bytes, " bytes of data"));
}

absl::StatusOr<Tensor> ReadTensor(const File& file, const NpyReadOptions& options,
                                  std::string* converted_from) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> file_bytes, file.BytesLeft());
  int64_t data_offset = 0;
  ASSIGN_OR_RETURN(NpyHeader header, ReadHeader(file, file_bytes, &data_offset));
  const absl::StatusOr<Elements> elements = ElementsOf(header, options);
  if (!elements.ok()) return file.Invalid(elements.status().message());
  const absl::StatusOr<int64_t> count = CountElements(*elements, header.shape);
  if (!count.ok()) return file.Invalid(count.status().message());
  const int64_t data_bytes = *count * static_cast<int64_t>(elements->file_bytes);
  const char* const name =
      elements->convert == nullptr ? DataTypeName(elements->data_type) : elements->convert->name;
  if (file_bytes.has_value() && data_bytes != *file_bytes - data_offset)
    return file.Invalid(absl::StrCat(name, " of shape (", absl::StrJoin(header.shape, ", "),
                                     ") needs ", data_bytes, " bytes of data; the file has ",
                                     *file_bytes - data_offset));
  const size_t bytes = static_cast<size_t>(*count) * ElementBytes(elements->data_type);
  std::shared_ptr<char[]> memory;
  ASSIGN_OR_RETURN(memory, Allocate(file, bytes));
  RETURN_IF_ERROR(elements->convert == nullptr
                      ? file.Read(memory.get(), bytes)
                      : ReadConverted(file, *elements, *count, memory.get()));
  RETURN_IF_ERROR(file.ExpectEnd());
  if (header.fortran_order && header.shape.size() > 1) {
    std::shared_ptr<char[]> ordered;
    ASSIGN_OR_RETURN(ordered, Allocate(file, bytes));
    ToRowMajor(header.shape, ElementBytes(elements->data_type), memory.get(), ordered.get());
    memory = std::move(ordered);
  }
  if (converted_from != nullptr) *converted_from = elements->convert == nullptr ? "" : name;
  const absl::Span<const char> data(memory.get(), bytes);
  return Tensor(elements->data_type, std::move(header.shape), data, std::move(memory));
}

}  // namespace

absl::StatusOr<Tensor> ReadNpy(const std::string& path, const NpyReadOptions& options,
                               std::string* converted_from) {
  const File file(path, open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_open()) return file.Error("opening");
  return ReadTensor(file, options, converted_from);
}

absl::StatusOr<Tensor> ReadNpy(int descriptor, const std::string& name,
                               const NpyReadOptions& options, std::string* converted_from) {
  const File file(name, fcntl(descriptor, F_DUPFD_CLOEXEC, 0));
  if (!file.is_open()) return file.Error("reading");
  return ReadTensor(file, options, converted_from);
}

absl::Status WriteNpy(const std::string& path, const Tensor& tensor) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CompleteFile> file, CompleteFile::Create(path));
  RETURN_IF_ERROR(file->Write(MakeHeader(tensor)));
  RETURN_IF_ERROR(file->Write(tensor.data()));
  return file->Commit();
}

absl::Status WriteNpy(int descriptor, const std::string& name, const Tensor& tensor) {
  ASSIGN_OR_RETURN(const std::unique_ptr<CompleteFile> file,
                   CompleteFile::Borrow(descriptor, name));
  RETURN_IF_ERROR(file->Write(MakeHeader(tensor)));
  RETURN_IF_ERROR(file->Write(tensor.data()));
  return file->Commit();
}

}  // namespace warpcall::client
