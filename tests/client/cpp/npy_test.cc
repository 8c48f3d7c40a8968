#include "warpcall/npy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cpp/npy_header.h"
#include "tests/client/bytes.h"
#include "tests/temp_folder.h"

namespace warpcall::client {
namespace {

using ::testing::AllOf;
using testing::Bytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A file as NumPy writes it, unpadded (readers must not rely on padding).
std::string Npy(const std::string& header, const std::string& data, int version = 1) {
  std::string file("\x93NUMPY");
  file += {static_cast<char>(version), '\0'};
  const size_t length_bytes = version == 1 ? 2 : 4;
  for (size_t i = 0; i < length_bytes; ++i)
    file += static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  return file + header + data;
}

std::string Header(const std::string& descr, const std::string& shape,
                   const std::string& fortran_order = "False") {
  return absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran_order,
                      ", 'shape': ", shape, ", }\n");
}

class NpyTest : public ::testing::Test {
 protected:
  std::string Store(const std::string& bytes) {
    const std::string path = folder_.Path("tensor.npy");
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }

  // The message of the refusal, which must be INVALID_ARGUMENT and name the file.
  std::string Refusal(const std::string& bytes) {
    const std::string path = Store(bytes);
    const auto tensor = ReadNpy(path);
    EXPECT_EQ(tensor.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(tensor.status().message()), HasSubstr(path));
    return std::string(tensor.status().message());
  }

  testing::TempFolder folder_;
};

TEST_F(NpyTest, ReadsFloat32OfEveryVersion) {
  const float values[] = {1, -2.5f, 3e38f, 0, 1e-45f, 6};
  const std::string data(reinterpret_cast<const char*>(values), sizeof values);
  for (const int version : {1, 2, 3}) {
    const auto tensor = ReadNpy(Store(Npy(Header("<f4", "(2, 3)"), data, version)));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->data_type(), DataType::kFloat32);
    EXPECT_THAT(tensor->shape(), ElementsAre(2, 3));
    EXPECT_THAT(tensor->ToFloats(), ::testing::ElementsAreArray(values));
  }
}

// Types as numpy.dtype reads them from a header, not only as NumPy writes them today.
TEST_F(NpyTest, ReadsATypeHoweverNumPySaysIt) {
  const std::string data("\x00\x00\x80\x3F", 4);
  for (const char* descr : {"<f4", "=f4", "|f4", "f4", "f", "<f", "float32", "single"}) {
    const auto tensor = ReadNpy(Store(Npy(Header(descr, "(1,)"), data)));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_THAT(tensor->ToFloats(), ElementsAre(1.0f)) << descr;
  }
  for (const char* descr : {"=f2", "f2", "e", "=e", "float16", "half"}) {
    const auto tensor = ReadNpy(Store(Npy(Header(descr, "(2,)"), data)));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->data_type(), DataType::kFloat16) << descr;
    EXPECT_EQ(Bytes(*tensor), data);
  }
  for (const char* descr : {"=u2", "u2", "H", "uint16", "ushort"}) {
    const auto tensor =
        ReadNpy(Store(Npy(Header(descr, "(2,)"), data)), {.uint16_is_bfloat16 = true});
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->data_type(), DataType::kBFloat16) << descr;
  }
}

TEST_F(NpyTest, ReadsTheLongIntegersOfPython2) {
  const auto tensor = ReadNpy(Store(Npy(Header("<f4", "(2L, 1L, 3)"), std::string(24, 'x'))));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->shape(), ElementsAre(2, 1, 3));
  for (const char* shape : {"(L,)", "(2LL,)", "(2l,)", "(2L 3L)"})
    EXPECT_THAT(Refusal(Npy(Header("<f4", shape), "")), HasSubstr("malformed")) << shape;
}

TEST_F(NpyTest, ReadsHalfTypes) {
  const std::string data("\x00\x3C\x00\xC0", 4);
  auto tensor = ReadNpy(Store(Npy(Header("<f2", "(2,)"), data)));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->data_type(), DataType::kFloat16);
  EXPECT_EQ(Bytes(*tensor), data);
  EXPECT_FALSE(tensor->View<float>().ok());
  for (const char* descr : {"<V2", "|V2", "bfloat16"}) {
    tensor = ReadNpy(Store(Npy(Header(descr, "(2,)"), data)));
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->data_type(), DataType::kBFloat16);
    EXPECT_EQ(Bytes(*tensor), data);
  }
}

TEST_F(NpyTest, TakesUint16ForBFloat16OnlyWhenAsked) {
  const std::string file = Npy(Header("<u2", "(1, 1)"), "ab");
  EXPECT_THAT(Refusal(file), HasSubstr("'<u2'"));
  const auto tensor = ReadNpy(Store(file), {.uint16_is_bfloat16 = true});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->data_type(), DataType::kBFloat16);
}

TEST_F(NpyTest, TakesScalarsEmptyArraysAndKeysInAnyOrder) {
  auto tensor = ReadNpy(Store(Npy(Header("<f4", "()"), "abcd")));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_TRUE(tensor->shape().empty());
  tensor = ReadNpy(Store(Npy(Header("<f4", "(3, 0, 7)"), "")));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->shape(), ElementsAre(3, 0, 7));
  tensor =
      ReadNpy(Store(Npy("{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<f4\"}", "abcd")));
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->shape(), ElementsAre(1));
}

TEST_F(NpyTest, WritesWhatItReads) {
  for (const DataType type : kDataTypes) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{5}, {2, 3}, {1, 2, 0}, {2, 1, 2, 1, 2, 1, 2, 1}, {}}) {
      std::string bytes(static_cast<size_t>(ByteCount(type, shape).value()), '\0');
      for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 37 + 1);
      const std::string path = folder_.Path("round.npy");
      ASSERT_TRUE(WriteNpy(path, Tensor::Borrow(type, shape, bytes)).ok());
      const auto tensor = ReadNpy(path);
      ASSERT_TRUE(tensor.ok()) << tensor.status();
      EXPECT_EQ(tensor->data_type(), type);
      EXPECT_THAT(tensor->shape(), ::testing::ElementsAreArray(shape));
      EXPECT_EQ(Bytes(*tensor), bytes);
      EXPECT_EQ((testing::ReadFile(path).size() - bytes.size()) % 64, 0u)
          << "data must start aligned";
    }
  }
}

TEST_F(NpyTest, WritesTheBytesThatNumPyWrites) {
  const std::string path = folder_.Path("exact.npy");
  ASSERT_TRUE(WriteNpy(path, Tensor::FromFloats({1}, {1.0f})).ok());
  std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }";
  text.resize(117, ' ');
  EXPECT_EQ(testing::ReadFile(path), Npy(text + "\n", std::string("\0\0\x80\x3F", 4)));
}

TEST_F(NpyTest, RefusesOtherElementsByName) {
  for (const char* descr :
       {"<f8", ">f4", "<i8", "|u1", "|b1", "<c8", ">f2", "<float32", "=f3", "<>f4", ""})
    EXPECT_THAT(Refusal(Npy(Header(descr, "(1,)"), "12345678")),
                HasSubstr(absl::StrCat("'", descr, "'")));
  EXPECT_THAT(Refusal(Npy(Header(">f4", "(1,)"), "1234")), HasSubstr("big-endian"));
  EXPECT_THAT(Refusal(Npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "")),
              HasSubstr("structured"));
}

// One element of each type that NumPy has, as the text that it is given by.
struct Given {
  const char* descr;
  std::string bytes;
  const char* name;
  float value;
};

template <typename T>
std::string BytesOf(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

TEST_F(NpyTest, CastsWhatIsOfAnotherTypeAndSaysFromWhich) {
  const Given kGiven[] = {
      {"<f8", BytesOf(1.0 / 3), "float64", 1.0f / 3},
      {"<f8", BytesOf(1e300), "float64", std::numeric_limits<float>::infinity()},
      {"<f2", std::string("\x00\xC0", 2), "float16", -2},
      {"<V2", std::string("\x80\x3F", 2), "bfloat16", 1},
      {"|b1", "\x01", "bool", 1},
      {"|i1", "\xFF", "int8", -1},
      {"|u1", "\xFF", "uint8", 255},
      {">i1", "\xFF", "int8", -1},
      {"bool", "\x01", "bool", 1},
      {"double", BytesOf(1.0 / 3), "float64", 1.0f / 3},
      {"=l", BytesOf<int64_t>(-7), "int64", -7},
      {"<i2", BytesOf<int16_t>(-300), "int16", -300},
      {"<u2", BytesOf<uint16_t>(65535), "uint16", 65535},
      {"<i4", BytesOf<int32_t>(INT32_MIN), "int32", -0x1p31f},
      {"<u4", BytesOf<uint32_t>(UINT32_MAX), "uint32", 0x1p32f},
      {"<i8", BytesOf<int64_t>((int64_t{1} << 40) + 1), "int64", 0x1p40f},
      {"<u8", BytesOf<uint64_t>(UINT64_MAX), "uint64", 0x1p64f},
  };
  for (const Given& given : kGiven) {
    const std::string path = Store(Npy(Header(given.descr, "(1,)"), given.bytes));
    std::string from;
    const auto tensor = ReadNpy(path, {.cast = DataType::kFloat32}, &from);
    ASSERT_TRUE(tensor.ok()) << given.descr << tensor.status();
    EXPECT_THAT(tensor->ToFloats(), ElementsAre(given.value)) << given.descr;
    EXPECT_EQ(from, given.name);
  }
  std::string from = "before";
  const std::string same = Store(Npy(Header("<f4", "(1,)"), "abcd"));
  EXPECT_EQ(Bytes(*ReadNpy(same, {.cast = DataType::kFloat32}, &from)), "abcd");
  EXPECT_EQ(from, "");
  const std::string bits = Store(Npy(Header("<u2", "(1,)"), std::string("\x80\x3F", 2)));
  const auto one = ReadNpy(bits, {.uint16_is_bfloat16 = true, .cast = DataType::kFloat32}, &from);
  EXPECT_THAT(one->ToFloats(), ElementsAre(1.0f));
}

// A value just beside the middle between two 16-bit values is rounded once. Rounding it to float32
// first would move it onto the middle.
TEST_F(NpyTest, CastsToHalfTypesRoundOnce) {
  const auto cast = [&](double value, DataType type) {
    const auto tensor = ReadNpy(Store(Npy(Header("<f8", "(1,)"), BytesOf(value))), {.cast = type});
    uint16_t bits;
    std::memcpy(&bits, tensor->data().data(), sizeof bits);
    return bits;
  };
  const double tiny = 0x1p-40;
  EXPECT_EQ(cast(1 + 0x1p-11, DataType::kFloat16), 0x3C00);         // the middle: to even
  EXPECT_EQ(cast(1 + 0x1p-11 + tiny, DataType::kFloat16), 0x3C01);  // above it
  EXPECT_EQ(cast(1 + 3 * 0x1p-11, DataType::kFloat16), 0x3C02);
  EXPECT_EQ(cast(1 + 3 * 0x1p-11 - tiny, DataType::kFloat16), 0x3C01);
  EXPECT_EQ(cast(-(1 + 0x1p-11 + tiny), DataType::kFloat16), 0xBC01);
  EXPECT_EQ(cast(1 + 0x1p-8, DataType::kBFloat16), 0x3F80);
  EXPECT_EQ(cast(1 + 0x1p-8 + tiny, DataType::kBFloat16), 0x3F81);
  EXPECT_EQ(cast(65519.99, DataType::kFloat16), 0x7BFF);
  EXPECT_EQ(cast(65520, DataType::kFloat16), 0x7C00);
  EXPECT_EQ(cast(1e300, DataType::kBFloat16), 0x7F80);
  EXPECT_EQ(cast(0x1p-25 * (1 + 0x1p-30), DataType::kFloat16), 0x0001);  // the least subnormal
  EXPECT_EQ(cast(0x1p-25, DataType::kFloat16), 0x0000);
  EXPECT_EQ(cast(std::nan(""), DataType::kFloat16) & 0x7E00, 0x7E00);
}

TEST_F(NpyTest, CastsArraysThatAreLargerThanAPiece) {
  std::vector<double> values(100'000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) / 3;
  const std::string data(reinterpret_cast<const char*>(values.data()), values.size() * 8);
  const auto tensor =
      ReadNpy(Store(Npy(Header("<f8", "(1000, 100)"), data)), {.cast = DataType::kFloat32});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  for (const size_t i : {size_t{0}, size_t{32767}, size_t{32768}, size_t{99'999}})
    EXPECT_EQ(tensor->ToFloats()[i], static_cast<float>(values[i]));
}

TEST_F(NpyTest, ARefusalOfACastableTypeSaysWhatWouldConvertIt) {
  EXPECT_THAT(Refusal(Npy(Header("<f8", "(1,)"), "12345678")),
              HasSubstr("'<f8' (float64); taken are"));
  const std::string path = Store(Npy(Header("<f8", "(1,)"), "12345678"));
  EXPECT_THAT(std::string(ReadNpy(path, {.cast_advice = "try this"}).status().message()),
              ::testing::EndsWith("; try this"));
  // No cast turns a text into a tensor.
  EXPECT_FALSE(
      ReadNpy(Store(Npy(Header("<U4", "(1,)"), "12345678")), {.cast = DataType::kFloat32}).ok());
  // Here the number of bytes of the file overflows.
  EXPECT_FALSE(
      ReadNpy(Store(Npy(Header("<f8", "(2305843009213693951,)"), "")), {.cast = DataType::kFloat16})
          .ok());
}

TEST_F(NpyTest, ReadsAndWritesPipes) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  ASSERT_TRUE(WriteNpy(ends[1], "the pipe", Tensor::FromFloats({2}, {1, 2})).ok());
  close(ends[1]);
  const auto tensor = ReadNpy(ends[0], "the pipe");
  close(ends[0]);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_THAT(tensor->ToFloats(), ElementsAre(1, 2));

  const std::string whole = Npy(Header("<f4", "(1,)"), "abcd");
  for (const auto& [bytes, message] :
       {std::pair(whole + "e", "more than its header says"),
        {whole.substr(0, whole.size() - 1), "ends 1 bytes too early"},
        {std::string(), "too early"}}) {
    ASSERT_EQ(pipe(ends), 0);
    ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    close(ends[1]);
    EXPECT_THAT(std::string(ReadNpy(ends[0], "the pipe").status().message()),
                AllOf(HasSubstr("the pipe: "), HasSubstr(message)));
    close(ends[0]);
  }
  EXPECT_FALSE(ReadNpy(ends[0], "closed").ok());
  EXPECT_FALSE(WriteNpy(ends[1], "closed", Tensor::FromFloats({1}, {1})).ok());
}

// Element i in row-major order is i, stored as a file in Fortran's order.
template <typename Element>
std::string ColumnMajor(const std::vector<int64_t>& shape) {
  const int64_t count = ByteCount(DataType::kFloat16, shape).value() / 2;
  std::vector<Element> elements(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, place = 0, stride = count;
    for (size_t k = shape.size(); k-- > 0; rest /= shape[k]) {
      stride /= shape[k];
      place += rest % shape[k] * stride;
    }
    elements[static_cast<size_t>(place)] = static_cast<Element>(i);
  }
  return {reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(Element)};
}

TEST_F(NpyTest, TurnsFortranOrderToRows) {
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{7},
                                            {1, 1},
                                            {3, 5},
                                            {65, 130},
                                            {70, 2, 3, 5},
                                            {2, 3, 2, 3, 2},
                                            {3, 0}}) {
    const std::string text = absl::StrCat("(", absl::StrJoin(shape, ", "), ",)");
    const auto floats = ReadNpy(Store(Npy(Header("<f4", text, "True"), ColumnMajor<float>(shape))));
    ASSERT_TRUE(floats.ok()) << floats.status();
    EXPECT_EQ(std::vector<int64_t>(floats->shape().begin(), floats->shape().end()), shape);
    const auto halves =
        ReadNpy(Store(Npy(Header("<V2", text, "True"), ColumnMajor<uint16_t>(shape))));
    ASSERT_TRUE(halves.ok()) << halves.status();
    const auto converted =
        ReadNpy(Store(Npy(Header("<i4", text, "True"), ColumnMajor<int32_t>(shape))),
                {.cast = DataType::kFloat32});
    ASSERT_TRUE(converted.ok()) << converted.status();
    EXPECT_EQ(Bytes(*converted), Bytes(*floats));
    const std::string bits = Bytes(*halves);
    const std::vector<float> values = floats->ToFloats();
    for (size_t i = 0; i < bits.size() / 2; ++i) {
      uint16_t bit;
      memcpy(&bit, bits.data() + 2 * i, 2);
      ASSERT_EQ(bit, i) << text;
      ASSERT_EQ(values[i], static_cast<float>(i)) << text;
    }
  }
}

TEST_F(NpyTest, RefusesSizesThatDoNotFit) {
  EXPECT_THAT(Refusal(Npy(Header("<f4", "(2,)"), "1234567")),
              HasSubstr("needs 8 bytes of data; the file has 7"));
  EXPECT_THAT(Refusal(Npy(Header("<f4", "(2,)"), "123456789")), HasSubstr("the file has 9"));
  // Far more than there is memory: refused by the file's size, before any is taken.
  EXPECT_THAT(Refusal(Npy(Header("<f4", "(1000000000000,)"), "1234")),
              HasSubstr("needs 4000000000000 bytes"));
  EXPECT_THAT(Refusal(Npy(Header("<f4", "(4294967296, 4294967296)"), "")), HasSubstr("int64"));
  EXPECT_THAT(Refusal(Npy(Header("<f4", "(0, 9223372036854775807, 9223372036854775807)"), "")),
              HasSubstr("int64"));
}

TEST_F(NpyTest, RefusesEveryTruncation) {
  for (const int version : {1, 2}) {
    const std::string whole = Npy(Header("<f4", "(2,)"), "12345678", version);
    for (size_t size = 0; size < whole.size(); ++size) Refusal(whole.substr(0, size));
  }
}

TEST_F(NpyTest, RefusesWhatIsNoNpyFile) {
  EXPECT_THAT(Refusal("PK\x03\x04 a .npz archive"), HasSubstr("not a .npy file"));
  EXPECT_THAT(Refusal(Npy(Header("<f4", "(1,)"), "1234", 4)), HasSubstr("version 4.0"));
  EXPECT_THAT(Refusal(Npy(std::string(10001, ' '), "")), HasSubstr("at most 10000"));
  std::string huge = Npy("{}", "", 2);
  huge.replace(8, 4, "\xFF\xFF\xFF\xFF");
  EXPECT_THAT(Refusal(huge), HasSubstr("4294967295"));
  EXPECT_EQ(ReadNpy(folder_.Path("missing")).status().code(), absl::StatusCode::kNotFound);
  EXPECT_FALSE(ReadNpy(folder_.Path(".")).ok());
  EXPECT_FALSE(WriteNpy(folder_.Path("no/such/folder.npy"), Tensor()).ok());
}

TEST(ParseNpyHeaderTest, RefusesMalformedText) {
  const char* kTexts[] = {
      "",
      "{",
      "{}",
      "{'descr': '<f4', 'fortran_order': False}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1 2)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1L)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
      "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}",
      "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), 'more': 1}",
      "{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}",
      "{'descr' '<f4', 'fortran_order': False, 'shape': (1,)}",
      "{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} x",
      "{, 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}",
  };
  for (const char* text : kTexts)
    EXPECT_EQ(ParseNpyHeader(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  EXPECT_FALSE(ParseNpyHeader(Header("<f4", many + ")")).ok());
}

}  // namespace
}  // namespace warpcall::client
