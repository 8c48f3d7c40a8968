// Tensors that stay on the device as users have them: the C++ client and the command, against the
// real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/e2e/server_process.h"
#include "tests/programs.h"
#include "tests/temp_folder.h"
#include "warpcall/client.h"
#include "warpcall/npy.h"

namespace warpcall::testing {
namespace {

using client::Tensor;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Of a server with room for a mebibyte.
constexpr int64_t kHalfElements = 100'000;  // float32: less than half of it

std::vector<float> Ramp(int64_t elements, float step) {
  std::vector<float> values(static_cast<size_t>(elements));
  for (size_t i = 0; i < values.size(); ++i) values[i] = step * static_cast<float>(i % 1009) / 1009;
  return values;
}

class ResidentClientTest : public ::testing::Test {
 protected:
  void Start(client::ClientOptions options = {}) {
    server_ = std::make_unique<ServerProcess>(
        std::vector<std::string>{"--devices=cpu", "--self_test=off", "--resident_mib=1"});
    client_ = std::make_unique<client::Client>(server_->address(), std::move(options));
  }

  client::Resident Put(const Tensor& tensor, const client::PutOptions& options = {}) {
    auto resident = client_->Put(tensor, options);
    EXPECT_TRUE(resident.ok()) << resident.status();
    return resident.ok() ? *std::move(resident) : client::Resident{};
  }
  std::vector<float> Get(const std::string& handle) {
    const auto tensor = client_->Get(handle);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    return tensor.ok() ? tensor->ToFloats() : std::vector<float>();
  }
  // What identity makes of it; or the error.
  std::string Use(const Tensor& tensor) {
    const auto result = client_->Execute({.kernel = "identity", .inputs = {tensor}});
    if (!result.ok()) return result.status().ToString();
    return result->outputs[0].ToFloats() == values_ ? "as put" : "other values";
  }
  void Free(const std::string& handle) {
    const std::string handles[] = {handle};
    const auto freed = client_->Free(handles);
    ASSERT_TRUE(freed.ok()) << freed.status();
    EXPECT_THAT(freed->unknown, ElementsAre());
  }

  ProgramResult Warpcall(const std::string& arguments) const {
    return RunProgram(absl::StrCat("cd '", folder_.Path(""), "' && '", ProgramPath("warpcall"),
                                   "' --server ", server_->address(), " ", arguments));
  }
  json WarpcallJson(const std::string& arguments) const {
    const ProgramResult run = Warpcall("--json " + arguments);
    EXPECT_EQ(run.exit_status, 0) << run.err << run.out;
    json result = json::parse(run.out, nullptr, /*allow_exceptions=*/false);
    EXPECT_FALSE(result.is_discarded()) << run.out;
    return result;
  }

  const std::vector<float> values_ = Ramp(kHalfElements, 1);
  const Tensor half_ = Tensor::FromFloats({kHalfElements}, values_);
  std::unique_ptr<ServerProcess> server_;
  std::unique_ptr<client::Client> client_;
  TempFolder folder_;
};

TEST_F(ResidentClientTest, WhatIsPutComesBackIsListedAndIsFreed) {
  Start({.chunk_bytes = 4096});
  const client::Resident put = Put(half_, {.label = "half", .evictable = true});
  EXPECT_EQ(put.device, "cpu");
  EXPECT_EQ(put.bytes, 4 * kHalfElements);
  EXPECT_FALSE(put.existed);
  EXPECT_TRUE(put.tensor.is_resident());
  EXPECT_EQ(put.tensor.shape(), half_.shape());
  EXPECT_EQ(Get(put.tensor.handle()), values_);
  EXPECT_EQ(Use(put.tensor), "as put");

  const auto listed = client_->ListTensors();
  ASSERT_TRUE(listed.ok()) << listed.status();
  ASSERT_EQ(listed->size(), 1u);
  const client::TensorInfo& info = listed->front();
  EXPECT_EQ(info.handle, put.tensor.handle());
  EXPECT_EQ(info.label, "half");
  EXPECT_EQ(info.spec, (client::TensorSpec{DataType::kFloat32, {kHalfElements}}));
  EXPECT_EQ(info.uses, 2);
  EXPECT_TRUE(info.evictable);

  const std::string handles[] = {put.tensor.handle(), "0123"};
  const auto freed = client_->Free(handles);
  ASSERT_TRUE(freed.ok()) << freed.status();
  EXPECT_EQ(freed->bytes, 4 * kHalfElements);
  EXPECT_THAT(freed->unknown, ElementsAre("0123"));
  const auto gone = client_->Get(put.tensor.handle());
  EXPECT_TRUE(absl::IsNotFound(gone.status())) << gone.status();
  ASSERT_EQ(client::LostHandles(gone.status()).size(), 1u);
  EXPECT_EQ(client::LostHandles(gone.status())[0].why, "freed");
}

TEST_F(ResidentClientTest, KeptOutputsAreInputs) {
  Start();
  for (const bool stream : {false, true}) {
    client::Call call{.kernel = "gelu", .inputs = {half_}};
    call.options.keep_outputs = true;
    const auto kept = stream ? client_->ExecuteStream(call) : client_->Execute(call);
    ASSERT_TRUE(kept.ok()) << kept.status();
    ASSERT_EQ(kept->outputs.size(), 1u);
    EXPECT_TRUE(kept->outputs[0].is_resident());
    EXPECT_TRUE(kept->outputs[0].data().empty());
    EXPECT_EQ(kept->outputs[0].shape(), half_.shape());
    EXPECT_EQ(kept->resident_bytes, 4 * kHalfElements);
    const auto direct = client_->Gelu(half_);
    ASSERT_TRUE(direct.ok()) << direct.status();
    const auto used = client_->Identity(kept->outputs[0]);
    ASSERT_TRUE(used.ok()) << used.status();
    EXPECT_EQ(used->outputs[0].data(), direct->outputs[0].data());
    EXPECT_EQ(used->resident_bytes, 4 * kHalfElements);
    Free(kept->outputs[0].handle());
  }
}

// Every window of the stream reads the weights where they are.
TEST_F(ResidentClientTest, AStreamSharesAResident) {
  Start();
  const Tensor weight = Tensor::FromFloats({64}, Ramp(64, 2));
  const client::Resident kept = Put(weight);
  const Tensor x = Tensor::FromFloats({1 << 16, 64}, Ramp(1 << 22, 3));
  const auto sent = client_->ExecuteStream({.kernel = "rmsnorm", .inputs = {x, weight}});
  const auto by_handle = client_->ExecuteStream({.kernel = "rmsnorm", .inputs = {x, kept.tensor}});
  ASSERT_TRUE(sent.ok()) << sent.status();
  ASSERT_TRUE(by_handle.ok()) << by_handle.status();
  EXPECT_EQ(sent->outputs[0].data(), by_handle->outputs[0].data());
}

TEST_F(ResidentClientTest, WhatTheServerLostIsPutAgainOnceAMinute) {
  Start();
  const client::Resident first = Put(half_, {.evictable = true});
  const std::string handle = first.tensor.handle();
  const Tensor copy = first.tensor;
  const Tensor other = Tensor::FromFloats({2, kHalfElements}, Ramp(2 * kHalfElements, 1));
  Free(Put(other).tensor.handle());  // took the room of the first
  EXPECT_EQ(Use(copy), "as put");
  EXPECT_NE(first.tensor.handle(), handle);
  EXPECT_EQ(copy.handle(), first.tensor.handle());
  Free(Put(other).tensor.handle());
  EXPECT_THAT(Use(copy),
              AllOf(HasSubstr("NOT_FOUND"),
                    HasSubstr("evicted; the client tries once a minute to put it again")));
}

TEST_F(ResidentClientTest, StreamsPutAgainToo) {
  Start();
  const Tensor weight = Tensor::FromFloats({64}, Ramp(64, 2));
  const client::Resident kept = Put(weight, {.evictable = true});
  const std::string handle = kept.tensor.handle();
  Free(Put(Tensor::FromFloats({1 << 18}, Ramp(1 << 18, 1))).tensor.handle());  // took all room
  const Tensor x = Tensor::FromFloats({4, 64}, Ramp(256, 3));
  const auto sent = client_->ExecuteStream({.kernel = "rmsnorm", .inputs = {x, weight}});
  const auto again = client_->ExecuteStream({.kernel = "rmsnorm", .inputs = {x, kept.tensor}});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->outputs[0].data(), sent->outputs[0].data());
  EXPECT_NE(kept.tensor.handle(), handle);
}

TEST_F(ResidentClientTest, WhatWasFreedBorrowedOrKeptIsNotPutAgain) {
  Start();
  const client::Resident freed = Put(half_);
  Free(freed.tensor.handle());
  EXPECT_THAT(Use(freed.tensor),
              AllOf(HasSubstr("NOT_FOUND"),
                    HasSubstr("freed; the client does not put again what was freed")));

  const Tensor other = Tensor::FromFloats({2, kHalfElements}, Ramp(2 * kHalfElements, 1));
  const client::Resident borrowed =
      Put(Tensor::Borrow(DataType::kFloat32, {kHalfElements}, half_.data()), {.evictable = true});
  Free(Put(other).tensor.handle());
  EXPECT_THAT(Use(borrowed.tensor),
              AllOf(HasSubstr("NOT_FOUND"),
                    HasSubstr("evicted; the client can't put it again because it keeps no copy")));
  EXPECT_THAT(client_->ListTensors()->size(), 0u);
}

TEST_F(ResidentClientTest, ALargeCallWithAResidentIsNotSplit) {
  Start({.connections = 2});
  const Tensor weight = Tensor::FromFloats({64}, Ramp(64, 2));
  const Tensor x = Tensor::FromFloats({1 << 16, 64}, Ramp(1 << 22, 3));
  const auto sent = client_->Execute({.kernel = "rmsnorm", .inputs = {x, weight}});
  ASSERT_TRUE(sent.ok()) << sent.status();
  EXPECT_EQ(sent->stripes, 2);
  const auto by_handle = client_->Execute({.kernel = "rmsnorm", .inputs = {x, Put(weight).tensor}});
  ASSERT_TRUE(by_handle.ok()) << by_handle.status();
  EXPECT_EQ(by_handle->stripes, 1);
  EXPECT_EQ(by_handle->outputs[0].data(), sent->outputs[0].data());
}

TEST_F(ResidentClientTest, BadPutsAreRefusedHere) {
  Start();
  const client::Resident kept = Put(half_);
  EXPECT_THAT(client_->Put(kept.tensor).status().ToString(),
              HasSubstr("the tensor is on the server already: " + kept.tensor.handle()));
  EXPECT_THAT(client_->Put(Tensor::Borrow(DataType::kFloat32, {3}, half_.data().first(8)))
                  .status()
                  .ToString(),
              HasSubstr("the tensor: 8 bytes of data, but float32[3] takes 12"));
  client::Client several(absl::StrCat("ipv4:", server_->address(), ",", server_->address()));
  EXPECT_THAT(
      several.Put(half_).status().ToString(),
      AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("name one server, or a sticky front")));
  const auto too_large = client_->Put(Tensor::FromFloats({1 << 18}, Ramp(1 << 18, 1)));
  EXPECT_TRUE(absl::IsResourceExhausted(too_large.status())) << too_large.status();
}

// A digest without bytes asks for what is there already.
TEST_F(ResidentClientTest, ADigestIsAQuestion) {
  Start();
  const Tensor question(DataType::kFloat32, {kHalfElements}, {}, nullptr);
  const std::string sha256(32, '\x01');
  EXPECT_TRUE(absl::IsNotFound(client_->Put(question, {.sha256 = sha256}).status()));
  const auto wrong = client_->Put(half_, {.sha256 = sha256});
  EXPECT_TRUE(absl::IsInvalidArgument(wrong.status())) << wrong.status();
}

TEST_F(ResidentClientTest, TheCommandPutsUsesGetsAndFrees) {
  Start();
  ASSERT_TRUE(client::WriteNpy(folder_.Path("x.npy"), half_).ok());
  const json put = WarpcallJson("put x.npy --label 'half of it' --ttl 1h");
  EXPECT_EQ(put["device"], "cpu");
  EXPECT_EQ(put["bytes"], 4 * kHalfElements);
  const std::string handle = put["handle"];
  EXPECT_THAT(Warpcall("tensors").out,
              AllOf(HasSubstr("@" + handle), HasSubstr("half of it"), HasSubstr("1h")));
  EXPECT_EQ(WarpcallJson("tensors")["tensors"][0]["handle"], handle);

  const json kept = WarpcallJson(absl::StrCat("run gelu --input @", handle, " --keep --ttl 90s"));
  EXPECT_EQ(kept["resident_bytes"], 8 * kHalfElements);
  const std::string output = kept["outputs"][0]["handle"];
  EXPECT_EQ(kept["outputs"][0]["bytes"], 4 * kHalfElements);
  WarpcallJson("run gelu --input x.npy --output y.npy");
  WarpcallJson(absl::StrCat("get @", output, " --output z.npy"));
  EXPECT_EQ(ReadFile(folder_.Path("y.npy")), ReadFile(folder_.Path("z.npy")));
  EXPECT_EQ(WarpcallJson(absl::StrCat("free @", output))["bytes"], 4 * kHalfElements);
  EXPECT_THAT(Warpcall(absl::StrCat("run gelu --input @", handle, " --keep")).out,
              ContainsRegex("@[0-9a-f]{40} "));

  EXPECT_EQ(WarpcallJson(absl::StrCat("free ", handle))["bytes"], 4 * kHalfElements);
  const ProgramResult again = Warpcall(absl::StrCat("free ", handle));
  EXPECT_EQ(again.exit_status, 1);
  EXPECT_THAT(again.out, HasSubstr("freed 0 of 1"));
  EXPECT_THAT(again.err, HasSubstr("NOT_FOUND"));
  EXPECT_EQ(Warpcall("get " + handle + " --output z.npy").exit_status, 1);
}

TEST_F(ResidentClientTest, TheCommandRefusesWhatMakesNoSense) {
  Start();
  ASSERT_TRUE(client::WriteNpy(folder_.Path("x.npy"), half_).ok());
  for (const auto& [arguments, error] : std::vector<std::pair<std::string, std::string>>{
           {"put x.npy --ttl soon", "--ttl is \"soon\"; it must be a duration over 0"},
           {"put x.npy --ttl -1s", "--ttl is \"-1s\""},
           {"run gelu x.npy --ttl 1h", "--keep"},
           {"run gelu x.npy --keep --output y.npy", "--output"},
           {"run gelu --input @", "@ stands before a handle"},
           {"get", "handle is required"},
           {"put missing.npy", "missing.npy"}}) {
    const ProgramResult run = Warpcall(arguments);
    EXPECT_EQ(run.exit_status, 2) << arguments;
    EXPECT_THAT(run.err, HasSubstr(error)) << arguments;
  }
}

}  // namespace
}  // namespace warpcall::testing
