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
#include "proto/wire/tensor_split.h"
#include "tests/proto/fragments.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::testing {
namespace {

// Field values only, in one order: map entries have none of their own.
std::string Canonical(v1::ExecuteRequest message) {
  message.DiscardUnknownFields();
  std::string text;
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream coded(&stream);
  coded.SetSerializationDeterministic(true);
  message.SerializeToCodedStream(&coded);
  coded.Trim();
  return text;
}

}  // namespace

std::string CompareWithProtobuf(absl::string_view message, uint32_t seed) {
  const google::protobuf::LogSilencer silencer;  // it reports every string that is not UTF-8
  const Fragments fragments(message, seed);
  wire::SplitMessage split;
  const absl::Status status =
      wire::SplitTensors(fragments.spans(), wire::kExecuteRequestInputs, &split);
  if (absl::StrContains(status.message(), "exceeds")) return "";  // our limit, which protobuf lacks

  v1::ExecuteRequest header;
  const bool accepted = status.ok() && header.ParseFromString(split.header);
  v1::ExecuteRequest whole;
  const bool expected = whole.ParseFromArray(message.data(), static_cast<int>(message.size()));
  if (accepted != expected)
    return absl::StrCat("protobuf ", expected ? "accepts" : "refuses", " it; the split says: ",
                        status.ok() ? "OK, and its header " : status.ToString(),
                        accepted ? "parses" : "does not parse");
  if (!accepted) return "";

  if (static_cast<int>(split.tensor_data.size()) != whole.inputs_size())
    return absl::StrCat(split.tensor_data.size(), " tensors, protobuf reads ", whole.inputs_size());
  for (int i = 0; i < whole.inputs_size(); ++i) {
    const wire::FragmentedBytes& data = split.tensor_data[static_cast<size_t>(i)];
    std::string copied(data.size, '\0');
    data.CopyTo(copied.data());
    if (copied != whole.inputs(i).data()) return absl::StrCat("data of input ", i, " differs");
    if (!header.inputs(i).data().empty()) return absl::StrCat("header keeps data of input ", i);
    whole.mutable_inputs(i)->clear_data();
  }
  return Canonical(header) == Canonical(whole) ? "" : "fields other than data differ";
}

}  // namespace warpcall::testing
