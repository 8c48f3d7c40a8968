#include "tests/proto/split_check.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "inference/grpc_service.pb.h"
#include "proto/wire/infer_split.h"
#include "proto/wire/tensor_split.h"
#include "tests/proto/fragments.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {
namespace {

// Field values only, in one order: map entries have none of their own.
template <typename Message>
std::string Canonical(Message message) {
  message.DiscardUnknownFields();
  std::string text;
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return text;
}

std::string TextOf(const wire::FragmentedBytes& data) {
  std::string copied(data.size, '\0');
  data.CopyTo(copied.data());
  return copied;
}

// Compares `split` with the whole message's tensors and removes their data from `whole`. Returns
// the difference, empty if there is none.
std::string TakeData(const wire::SplitMessage& split, v1::ExecuteRequest* whole) {
  if (static_cast<int>(split.tensor_data.size()) != whole->inputs_size())
    return absl::StrCat(split.tensor_data.size(), " tensors, protobuf reads ",
                        whole->inputs_size());
  for (int i = 0; i < whole->inputs_size(); ++i) {
    if (TextOf(split.tensor_data[static_cast<size_t>(i)]) != whole->inputs(i).data())
      return absl::StrCat("data of input ", i, " differs");
    whole->mutable_inputs(i)->clear_data();
  }
  return "";
}

std::string TakeData(const wire::SplitMessage& split, v1::ExecuteGraphRequest* whole) {
  if (static_cast<int>(split.tensor_data.size()) != whole->inputs_size())
    return absl::StrCat(split.tensor_data.size(), " tensors, protobuf reads ",
                        whole->inputs_size());
  for (int i = 0; i < whole->inputs_size(); ++i) {
    v1::GraphInput& input = *whole->mutable_inputs(i);
    if (TextOf(split.tensor_data[static_cast<size_t>(i)]) != input.tensor().data())
      return absl::StrCat("data of input ", i, " differs");
    if (input.has_tensor()) input.mutable_tensor()->clear_data();
  }
  return "";
}

std::string TakeData(const wire::SplitMessage& split, v1::PutHeader* whole) {
  if (split.tensor_data.size() != 1) return absl::StrCat(split.tensor_data.size(), " tensors");
  if (TextOf(split.tensor_data[0]) != whole->tensor().data()) return "the tensor's data differ";
  if (whole->has_tensor()) whole->mutable_tensor()->clear_data();
  return "";
}

std::string TakeData(const wire::SplitMessage& split, inference::ModelInferRequest* whole) {
  if (static_cast<int>(split.tensor_data.size()) != whole->inputs_size() ||
      static_cast<int>(split.raw_data.size()) != whole->raw_input_contents_size())
    return absl::StrCat(split.tensor_data.size(), " tensors and ", split.raw_data.size(),
                        " raw ones, protobuf reads ", whole->inputs_size(), " and ",
                        whole->raw_input_contents_size());
  for (int i = 0; i < whole->inputs_size(); ++i) {
    if (!whole->inputs(i).has_contents()) {
      if (split.tensor_data[static_cast<size_t>(i)].size == 0) continue;
      return absl::StrCat("input ", i, " has floats, but protobuf reads no contents");
    }
    auto& floats = *whole->mutable_inputs(i)->mutable_contents()->mutable_fp32_contents();
    const std::string bytes(reinterpret_cast<const char*>(floats.data()),
                            sizeof(float) * static_cast<size_t>(floats.size()));
    if (TextOf(split.tensor_data[static_cast<size_t>(i)]) != bytes)
      return absl::StrCat("floats of input ", i, " differ");
    floats.Clear();
  }
  for (int i = 0; i < whole->raw_input_contents_size(); ++i) {
    if (TextOf(split.raw_data[static_cast<size_t>(i)]) != whole->raw_input_contents(i))
      return absl::StrCat("raw contents ", i, " differ");
    whole->mutable_raw_input_contents(i)->clear();
  }
  return "";
}

absl::Status SplitAs(const v1::ExecuteRequest&, absl::Span<const wire::Bytes> fragments,
                     wire::SplitMessage* split) {
  return wire::SplitTensors(fragments, wire::kExecuteRequestInputs, split);
}

absl::Status SplitAs(const v1::ExecuteGraphRequest&, absl::Span<const wire::Bytes> fragments,
                     wire::SplitMessage* split) {
  return wire::SplitGraph(fragments, split);
}

absl::Status SplitAs(const v1::PutHeader&, absl::Span<const wire::Bytes> fragments,
                     wire::SplitMessage* split) {
  return wire::SplitPutHeader(fragments, split);
}

absl::Status SplitAs(const inference::ModelInferRequest&, absl::Span<const wire::Bytes> fragments,
                     wire::SplitMessage* split) {
  return wire::SplitInferRequest(fragments, split);
}

template <typename Message>
std::string Compare(absl::string_view message, uint32_t seed) {
  const google::protobuf::LogSilencer silencer;  // it reports every string that is not UTF-8
  const Fragments fragments(message, seed);
  wire::SplitMessage split;
  const absl::Status status = SplitAs(Message(), fragments.spans(), &split);
  if (absl::StrContains(status.message(), "exceeds")) return "";  // our limit, which protobuf lacks

  Message header;
  const bool accepted = status.ok() && header.ParseFromString(split.header);
  Message whole;
  const bool expected = whole.ParseFromArray(message.data(), static_cast<int>(message.size()));
  if (accepted != expected)
    return absl::StrCat("protobuf ", expected ? "accepts" : "refuses", " it; the split says: ",
                        status.ok() ? "OK, and its header " : status.ToString(),
                        accepted ? "parses" : "does not parse");
  if (!accepted) return "";
  if (std::string difference = TakeData(split, &whole); !difference.empty()) return difference;
  // The header has none of the data, so nothing is taken from it.
  wire::SplitMessage none;
  none.tensor_data.resize(split.tensor_data.size());
  none.raw_data.resize(split.raw_data.size());
  if (!TakeData(none, &header).empty()) return "the header keeps data";
  return Canonical(header) == Canonical(whole) ? "" : "fields other than data differ";
}

}  // namespace

std::string CompareWithProtobuf(absl::string_view message, uint32_t seed) {
  return Compare<v1::ExecuteRequest>(message, seed);
}

std::string CompareGraphWithProtobuf(absl::string_view message, uint32_t seed) {
  return Compare<v1::ExecuteGraphRequest>(message, seed);
}

std::string ComparePutWithProtobuf(absl::string_view message, uint32_t seed) {
  return Compare<v1::PutHeader>(message, seed);
}

std::string CompareInferWithProtobuf(absl::string_view message, uint32_t seed) {
  return Compare<inference::ModelInferRequest>(message, seed);
}

}  // namespace warpcall::testing
