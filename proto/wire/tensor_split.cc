#include "proto/wire/tensor_split.h"

#include <cstdint>
#include <cstring>
#include <utility>

#include "proto/common/check.h"
#include "proto/wire/cursor.h"
#include "proto/wire/splitter.h"
#include "warpcall/v1/warpcall.pb.h"

namespace warpcall::wire {
namespace {

constexpr uint32_t kTensorType = v1::Tensor::kDataTypeFieldNumber;
constexpr uint32_t kTensorShape = v1::Tensor::kShapeFieldNumber;
constexpr uint32_t kTensorData = v1::Tensor::kDataFieldNumber;
static_assert(kExecuteRequestInputs == v1::ExecuteRequest::kInputsFieldNumber);
static_assert(kExecuteResponseOutputs == v1::ExecuteResponse::kOutputsFieldNumber);
static_assert(kExecuteGraphResponseOutputs == v1::ExecuteGraphResponse::kOutputsFieldNumber);

constexpr FieldRule kTensorFields[] = {{kTensorData, FieldRule::Kind::kBytes}};
constexpr MessageRule kTensorRule = RuleOf<v1::Tensor>(kTensorFields);
constexpr FieldRule kRequestFields[] = {
    {kExecuteRequestInputs, FieldRule::Kind::kTensors, &kTensorRule}};
constexpr FieldRule kResponseFields[] = {
    {kExecuteResponseOutputs, FieldRule::Kind::kTensors, &kTensorRule}};
constexpr FieldRule kGraphInputFields[] = {
    {v1::GraphInput::kTensorFieldNumber, FieldRule::Kind::kMessage, &kTensorRule}};
constexpr MessageRule kGraphInputRule = RuleOf<v1::GraphInput>(kGraphInputFields);
constexpr FieldRule kGraphFields[] = {
    {v1::ExecuteGraphRequest::kInputsFieldNumber, FieldRule::Kind::kTensors, &kGraphInputRule}};
constexpr FieldRule kGraphResponseFields[] = {
    {kExecuteGraphResponseOutputs, FieldRule::Kind::kTensors, &kTensorRule}};
constexpr FieldRule kPutFields[] = {
    {v1::PutHeader::kTensorFieldNumber, FieldRule::Kind::kMessage, &kTensorRule}};

}  // namespace

constexpr MessageRule kExecuteRequestRule = RuleOf<v1::ExecuteRequest>(kRequestFields);
constexpr MessageRule kExecuteResponseRule = RuleOf<v1::ExecuteResponse>(kResponseFields);
constexpr MessageRule kExecuteGraphRequestRule = RuleOf<v1::ExecuteGraphRequest>(kGraphFields);
constexpr MessageRule kExecuteGraphResponseRule =
    RuleOf<v1::ExecuteGraphResponse>(kGraphResponseFields);
constexpr MessageRule kPutHeaderRule = RuleOf<v1::PutHeader>(kPutFields);

void FragmentedBytes::Append(Bytes piece) {
  pieces.push_back(piece);
  size += piece.size();
}

void FragmentedBytes::Clear() {
  pieces.clear();
  size = 0;
}

void FragmentedBytes::CopyTo(void* destination) const {
  auto* out = static_cast<char*>(destination);
  for (const Bytes& piece : pieces) {
    std::memcpy(out, piece.data(), piece.size());
    out += piece.size();
  }
}

void SplitMessage::Clear() {
  header.clear();
  tensor_data.clear();
  raw_data.clear();
}

absl::Status SplitTensors(absl::Span<const Bytes> fragments, int tensor_field,
                          SplitMessage* split) {
  WARPCALL_DCHECK(tensor_field == kExecuteRequestInputs || tensor_field == kExecuteResponseOutputs,
                  tensor_field);
  return Split(fragments,
               tensor_field == kExecuteRequestInputs ? kExecuteRequestRule : kExecuteResponseRule,
               split);
}

absl::Status SplitGraph(absl::Span<const Bytes> fragments, SplitMessage* split) {
  return Split(fragments, kExecuteGraphRequestRule, split);
}

absl::Status SplitGraphResponse(absl::Span<const Bytes> fragments, SplitMessage* split) {
  return Split(fragments, kExecuteGraphResponseRule, split);
}

absl::Status SplitPutHeader(absl::Span<const Bytes> fragments, SplitMessage* split) {
  FragmentedBytes data;
  if (absl::Status status = Split(fragments, kPutHeaderRule, split, &data); !status.ok())
    return status;
  split->tensor_data.push_back(std::move(data));
  return absl::OkStatus();
}

void AppendMessage(int field, absl::Span<const char> message, size_t more, std::string* out) {
  WARPCALL_DCHECK(field > 0, field);
  AppendVarint(Tag(static_cast<uint32_t>(field), kLength), out);
  AppendVarint(message.size() + more, out);
  out->append(message.data(), message.size());
}

void AppendTensorPrefix(int tensor_field, const TensorPrefix& prefix, std::string* out) {
  size_t shape_bytes = 0;
  for (int64_t dim : prefix.shape) shape_bytes += VarintBytes(static_cast<uint64_t>(dim));
  std::string fields;
  AppendVarint(Tag(kTensorType, kVarint), &fields);
  AppendVarint(static_cast<uint64_t>(prefix.data_type), &fields);
  AppendVarint(Tag(kTensorShape, kLength), &fields);
  AppendVarint(shape_bytes, &fields);
  for (int64_t dim : prefix.shape) AppendVarint(static_cast<uint64_t>(dim), &fields);
  if (!prefix.handle.empty())
    AppendMessage(v1::Tensor::kHandleFieldNumber, prefix.handle, 0, &fields);
  AppendVarint(Tag(kTensorData, kLength), &fields);
  AppendVarint(prefix.data_bytes, &fields);
  AppendMessage(tensor_field, fields, prefix.data_bytes, out);
}

void AppendGraphInputPrefix(absl::Span<const char> name, const TensorPrefix& prefix,
                            std::string* out) {
  std::string input;
  AppendMessage(v1::GraphInput::kNameFieldNumber, name, 0, &input);
  AppendTensorPrefix(v1::GraphInput::kTensorFieldNumber, prefix, &input);
  AppendMessage(v1::ExecuteGraphRequest::kInputsFieldNumber, input, prefix.data_bytes, out);
}

}  // namespace warpcall::wire
