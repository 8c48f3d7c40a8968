#include "proto/wire/infer_split.h"

#include "inference/grpc_service.pb.h"
#include "proto/wire/cursor.h"
#include "proto/wire/splitter.h"

namespace warpcall::wire {
namespace {

using inference::InferTensorContents;
using inference::ModelInferRequest;
using inference::ModelInferResponse;
using inference::ModelStreamInferResponse;
using InputTensor = ModelInferRequest::InferInputTensor;

constexpr FieldRule kContentsFields[] = {
    {InferTensorContents::kFp32ContentsFieldNumber, FieldRule::Kind::kFloats}};
constexpr MessageRule kContentsRule = RuleOf<InferTensorContents>(kContentsFields);
constexpr FieldRule kInputFields[] = {
    {InputTensor::kContentsFieldNumber, FieldRule::Kind::kMessage, &kContentsRule}};
constexpr MessageRule kInputRule = RuleOf<InputTensor>(kInputFields);
constexpr FieldRule kInferFields[] = {
    {ModelInferRequest::kInputsFieldNumber, FieldRule::Kind::kTensors, &kInputRule},
    {ModelInferRequest::kRawInputContentsFieldNumber, FieldRule::Kind::kEachBytes}};

}  // namespace

constexpr MessageRule kModelInferRequestRule = RuleOf<ModelInferRequest>(kInferFields);

absl::Status SplitInferRequest(absl::Span<const Bytes> fragments, SplitMessage* split) {
  return Split(fragments, kModelInferRequestRule, split);
}

void AppendRawOutputPrefix(size_t data_bytes, std::string* out) {
  AppendVarint(Tag(ModelInferResponse::kRawOutputContentsFieldNumber, kLength), out);
  AppendVarint(data_bytes, out);
}

void AppendStreamedResponsePrefix(size_t response_bytes, std::string* out) {
  AppendVarint(Tag(ModelStreamInferResponse::kInferResponseFieldNumber, kLength), out);
  AppendVarint(response_bytes, out);
}

}  // namespace warpcall::wire
