#include "server/transport/put_call.h"

#include <chrono>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "proto/common/status_macros.h"
#include "proto/wire/chunk.h"
#include "server/engine/refusal.h"
#include "server/transport/background_thread.h"
#include "server/transport/caller.h"
#include "server/transport/reply.h"

namespace warpcall {

namespace {

std::string ToHex(const Sha256& sha256) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(sha256.data()), sha256.size()));
}

absl::StatusOr<std::optional<Sha256>> ReadSha256(const std::string& bytes) {
  if (bytes.empty()) return std::optional<Sha256>();
  Sha256 sha256;
  if (bytes.size() != sha256.size())
    return absl::InvalidArgumentError(
        absl::StrCat("sha256 has ", bytes.size(), " bytes; it takes ", sha256.size(), " or none"));
  for (size_t i = 0; i < sha256.size(); ++i) sha256[i] = static_cast<uint8_t>(bytes[i]);
  return std::optional<Sha256>(sha256);
}

}  // namespace

absl::Status PutReader::Read(const grpc::ByteBuffer& received) {
  Slices slices;
  wire::StreamMessage message;
  RETURN_IF_ERROR(SplitStreamMessage(received, &slices, &message));
  if (message.member == wire::StreamMember::kNone)
    return absl::InvalidArgumentError("a message holds neither a header nor a chunk");
  if (message.member == wire::StreamMember::kHeader) {
    if (has_header_) return absl::InvalidArgumentError("the header came a second time");
    return ReadHeader(message.payload, slices);
  }
  if (!has_header_) return absl::InvalidArgumentError("a chunk came before the header");
  wire::ChunkView chunk;
  RETURN_IF_ERROR(wire::ParseChunk(message.payload.pieces, &chunk));
  if (!is_open_) RETURN_IF_ERROR(Open());
  return request_.Add(chunk, slices);
}

absl::Status PutReader::ReadHeader(const wire::FragmentedBytes& payload, const Slices& slices) {
  wire::SplitMessage split;
  RETURN_IF_ERROR(wire::SplitPutHeader(payload.pieces, &split));
  v1::PutHeader header;
  if (!header.ParseFromString(split.header))
    return absl::InvalidArgumentError(
        "the header is not a valid PutHeader: protobuf cannot parse its fields");
  has_header_ = true;
  if (!header.tensor().handle().empty())
    return absl::InvalidArgumentError("the tensor has a handle: it is on the server already");
  ASSIGN_OR_RETURN(spec_, ToTensorSpec(header.tensor(), "the tensor"));
  ASSIGN_OR_RETURN(terms_.sha256, ReadSha256(header.sha256()));
  terms_.ttl_ns = header.ttl_ns();
  terms_.label = header.label();
  terms_.evictable = header.evictable();
  RETURN_IF_ERROR(deps_->engine->residents().Check(terms_));
  device_ = header.device();
  const wire::FragmentedBytes& data = split.tensor_data[0];
  if (data.size > 0 && data.size != spec_.bytes())
    return absl::InvalidArgumentError(absl::StrCat("the tensor has ", data.size,
                                                   " bytes of data in the header, but ",
                                                   ToString(spec_), " takes ", spec_.bytes()));
  if (terms_.sha256.has_value()) digest_ = std::make_unique<Sha256Hash>();
  // Without bytes it may be a question, which needs no memory.
  if (terms_.sha256.has_value() && data.size == 0 && spec_.bytes() > 0) return absl::OkStatus();
  RETURN_IF_ERROR(Open());
  if (data.size == 0) return absl::OkStatus();
  return request_.Add({0, 0, data}, slices);
}

absl::Status PutReader::Open() {
  is_open_ = true;
  const Engine& engine = *deps_->engine;
  std::string device = device_;
  if (device.empty()) {
    const int chosen = deps_->engine->residents().ChooseDevice(
        request_.request().owner(), [&](int i) { return engine.device(i).healthy(); });
    device = engine.device(chosen).properties().name;
  }
  // The digest counts once it was found right.
  Residents::Terms terms = terms_;
  terms.sha256.reset();
  return request_.OpenPut(spec_, device, terms);
}

absl::Status PutReader::ReadEnd() {
  if (!has_header_) return absl::InvalidArgumentError("the call ended before its header");
  return is_open_ ? request_.CheckComplete() : Answer();
}

absl::Status PutReader::Answer() {
  Residents& residents = deps_->engine->residents();
  int device = -1;
  for (int i = 0; i < deps_->engine->device_count(); ++i)
    if (deps_->engine->device(i).properties().name == device_) device = i;
  if (device < 0 && !device_.empty())
    return absl::NotFoundError(absl::StrCat("there is no device \"", device_, "\""));
  const ResidentContentPtr content =
      residents.Find(request_.request().caller()->name, device, spec_, *terms_.sha256);
  if (content == nullptr)
    return absl::NotFoundError(
        absl::StrCat("no ", ToString(spec_), " of this caller has sha256 ", ToHex(*terms_.sha256)));
  Residents::Named named;
  ASSIGN_OR_RETURN(named, residents.Name(content, terms_));
  FillIn(named, content->device(), true);
  request_.request().AddKept(named);
  return absl::OkStatus();
}

void PutReader::Hash(const Window& window) {
  for (const Slices& slices : window.inputs)
    for (const grpc::Slice& slice : slices)
      digest_->Add({reinterpret_cast<const char*>(slice.begin()), slice.size()});
}

absl::Status PutReader::NameTensor() {
  Request& request = request_.request();
  if (digest_ != nullptr) {
    const Sha256 sha256 = digest_->Finish();
    if (sha256 != *terms_.sha256)
      return absl::InvalidArgumentError(absl::StrCat("sha256 is ", ToHex(*terms_.sha256),
                                                     ", but the bytes have ", ToHex(sha256)));
    request.SetDigest(sha256);
  }
  RETURN_IF_ERROR(request.NameOutputs());
  FillIn(request.kept()[0], request.trace().device, request.existed());
  return absl::OkStatus();
}

void PutReader::FillIn(const Residents::Named& named, int device, bool existed) {
  response_.set_handle(named.handle);
  response_.set_device(deps_->engine->device(device).properties().name);
  response_.set_bytes(static_cast<int64_t>(spec_.bytes()));
  response_.set_expires_unix_ns(named.expires_unix_ns);
  response_.set_existed(existed);
}

PutCall::PutCall(ExecuteDeps* deps, grpc::CallbackServerContext* context,
                 grpc::ByteBuffer* response)
    : StreamCall(deps, context, &deps->calls.streams),
      response_(response),
      reader_(deps, context, Identify(*deps, *context)),
      windows_(deps, {&strand_, [this](const absl::Status& status) { Fail(status); },
                      [this] { Advance(); },
                      [this](Window* window, absl::AnyInvocable<void()> ready) {
                        Hash(window, std::move(ready));
                      }}) {
  strand_.Post([this] {
    if (absl::Status status = reader_.request().request().Admit("Put"); !status.ok()) Fail(status);
    WatchProgress();
    Advance();
  });
  handover_.Give();
}

PutCall::~PutCall() = default;

void PutCall::Read(bool ok, absl::Status status) {
  reading_ = false;
  input_ended_ = !ok;
  if (!failure_.has_value()) {
    if (status.ok()) status = ok ? reader_.Read(incoming_) : reader_.ReadEnd();
    incoming_.Clear();
    if (!status.ok()) Fail(status);
  }
  Advance();
}

// In the order of the windows, off gRPC's threads.
void PutCall::Hash(Window* window, absl::AnyInvocable<void()> ready) {
  if (!reader_.HasDigest()) return ready();
  deps_->parts.background->Add([this, window, ready = std::move(ready)]() mutable {
    reader_.Hash(*window);
    ready();
  });
}

void PutCall::Advance() {
  if (reader_.is_open() && !failure_.has_value() && !finished_) {
    windows_.Run(&reader_.request(), [this] { return windows_.HasRoom(); });
    while (windows_.TakeRan() != nullptr) {
    }
    if (input_ended_ && !failure_.has_value() && reader_.request().AllRan() && windows_.IsEmpty())
      if (absl::Status status = reader_.NameTensor(); !status.ok()) Fail(status);
  }
  if (!reader_.response().handle().empty() && !failure_.has_value() && !finished_)
    End(reader_.request().End(absl::OkStatus()));
  if (!reading_ && !input_ended_ && !failure_.has_value() && !finished_ && windows_.HasRoom()) {
    reading_ = true;
    StartRead(&incoming_);
  }
  if (failure_.has_value() && !finished_ && windows_.IsIdle()) End(*failure_);
}

void PutCall::WatchProgress() {
  if (finished_ || std::exchange(alarm_set_, true)) return;
  Hold();
  const auto period = std::chrono::nanoseconds(deps_->limits.send_ns_max);
  alarm_.Set(std::chrono::system_clock::now() + period, [this](bool) {
    strand_.Post([this] {
      alarm_set_ = false;
      const int64_t received = reader_.request().received_bytes();
      if (reading_ && received == std::exchange(received_bytes_, received) &&
          !failure_.has_value() && !finished_)
        Fail(RefuseFor(RejectReason::kQuota,
                       absl::ResourceExhaustedError(absl::StrCat(
                           "no byte of the tensor came in ",
                           static_cast<double>(deps_->limits.send_ns_max) / 1e9,
                           " s (send_seconds), after ", received, " of ", reader_.bytes())),
                       kNeverRetry));
      WatchProgress();
      Advance();
      Release();
    });
  });
}

void PutCall::Fail(const absl::Status& status) {
  // An answer that was on its way: the client has not got the handle.
  if (finished_) return reader_.request().request().TakeBackOutputs();
  if (failure_.has_value()) return;
  failure_ = reader_.request().End(status);
  windows_.Cancel();
}

void PutCall::End(const grpc::Status& status) {
  finished_ = true;
  if (alarm_set_) alarm_.Cancel();
  if (status.ok()) *response_ = ToByteBuffer(reader_.response());
  FinishWith(status, status.ok() ? response_->Length() : 0);
}

}  // namespace warpcall
