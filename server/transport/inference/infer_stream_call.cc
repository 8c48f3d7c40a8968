#include "server/transport/inference/infer_stream_call.h"

#include <string>
#include <utility>
#include <vector>

#include "proto/wire/infer_split.h"
#include "server/transport/caller.h"
#include "server/transport/status.h"

namespace warpcall::oip {
namespace {

// Requests of one stream that are not answered yet.
constexpr size_t kItemsMax = 16;
constexpr char kGrpcErrorKey[] = "triton_grpc_error";

bool WantsGrpcErrors(const grpc::CallbackServerContext& context) {
  const auto [begin, end] = context.client_metadata().equal_range(kGrpcErrorKey);
  return begin != end && begin->second == "true";
}

grpc::ByteBuffer ToMessage(const std::string& bytes) {
  const grpc::Slice slice(bytes);
  return grpc::ByteBuffer(&slice, 1);
}

// A ModelStreamInferResponse that holds `response`, whose bytes stay where they are.
grpc::ByteBuffer Wrap(const grpc::ByteBuffer& response) {
  std::vector<grpc::Slice> inner;
  if (!response.Dump(&inner).ok()) inner.clear();
  std::string prefix;
  wire::AppendStreamedResponsePrefix(response.Length(), &prefix);
  std::vector<grpc::Slice> slices{grpc::Slice(prefix)};
  slices.insert(slices.end(), inner.begin(), inner.end());
  return grpc::ByteBuffer(slices.data(), slices.size());
}

grpc::ByteBuffer ToMessage(const absl::Status& error, const std::string& id) {
  inference::ModelStreamInferResponse response;
  response.set_error_message(ToGrpcStatus(error).error_message());
  response.mutable_infer_response()->set_id(id);
  auto& parameters = *response.mutable_infer_response()->mutable_parameters();
  parameters["triton_final_response"].set_bool_param(true);
  return ToMessage(response.SerializeAsString());
}

}  // namespace

InferStreamCall::InferStreamCall(ExecuteDeps* deps, Door* door,
                                 grpc::CallbackServerContext* context)
    : StreamCall(deps, context, &deps->calls.streams),
      door_(door),
      ends_with_error_(WantsGrpcErrors(*context)) {
  strand_.Post([this] {
    Request first(deps_, context_, Identify(*deps_, *context_));
    if (absl::Status status = first.Admit(kModelStreamInfer); !status.ok()) {
      first.Count(status);
      Fail(status);
    }
    Advance();
  });
  handover_.Give();
}

void InferStreamCall::OnReadDone(bool ok) {
  PostTold([this, ok] {
    reading_ = false;
    input_ended_ = !ok;
    if (ok && !failure_.has_value()) StartItem();
    Advance();
  });
}

void InferStreamCall::Written(bool ok) {
  outgoing_.Clear();
  if (!ok) Fail(absl::CancelledError("the client went away while its results were sent"));
}

void InferStreamCall::StartItem() {
  items_.push_back(std::make_unique<Item>());
  Item* const item = items_.back().get();
  item->message.Swap(&incoming_);
  auto codec = std::make_unique<InferCodec>(door_, true);
  item->codec = codec.get();
  item->call = std::make_unique<Call>(deps_, context_, std::move(codec));
  item->call->Start(&item->message, &item->response, [this, item](const absl::Status& status) {
    strand_.Post([this, item, status] {
      item->ended = status;
      Advance();
    });
  });
}

void InferStreamCall::Advance() {
  if (failure_.has_value())
    while (!items_.empty() && items_.front()->ended.has_value()) items_.pop_front();
  else if (!writing_ && !items_.empty() && items_.front()->ended.has_value())
    WriteNext();
  if (!reading_ && !input_ended_ && items_.size() < kItemsMax && !failure_.has_value()) {
    reading_ = true;
    StartRead(&incoming_);
  }
  EndIfIdle();
}

void InferStreamCall::WriteNext() {
  const std::unique_ptr<Item> item = std::move(items_.front());
  items_.pop_front();
  const absl::Status& status = *item->ended;
  if (!status.ok() && ends_with_error_) {
    Fail(status);
    return Advance();
  }
  outgoing_ = status.ok() ? Wrap(item->response) : ToMessage(status, item->codec->id());
  writing_ = true;
  StartWrite(&outgoing_);
}

void InferStreamCall::Fail(const absl::Status& status) {
  if (failure_.has_value() || finished_) return;
  failure_ = status;
  for (const std::unique_ptr<Item>& item : items_)
    if (!item->ended.has_value()) item->call->Cancel();
}

void InferStreamCall::EndIfIdle() {
  if (finished_ || writing_ || !items_.empty()) return;
  if (!failure_.has_value() && !input_ended_) return;
  finished_ = true;
  const absl::Status end = failure_.value_or(absl::OkStatus());
  AddLoadReport(*deps_, end.code(), context_);
  Finish(EndOf(end, context_));
}

}  // namespace warpcall::oip
