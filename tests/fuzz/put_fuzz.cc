// Puts, one after the other: a header, then messages, most of them chunks that the input describes
// and some of any bytes. A model knows which bytes have come, and so what must be refused. What
// came whole has a name and these bytes; memory is reserved for it and for nothing else.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/access/sha256.h"
#include "server/log/log.h"
#include "server/transport/put_call.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/stream_model.h"
#include "tests/fuzz/stream_server.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

constexpr int kPutsMax = 4;
constexpr int kMessagesMax = 100;
constexpr uint8_t kEndOfPut = 255;  // where a message would begin

enum Flag : uint8_t {
  kHasData = 1,    // in the header
  kHasDigest = 2,  // of the model's own bytes
  kIsOdd = 4,      // a byte follows: see MakeOdd
  kNoHeader = 8,
  kUnread = 16,  // the client has not got the answer
  kFree = 32,    // the oldest tensor, before the Put begins
};

std::string Sha256Of(const std::string& bytes) {
  Sha256Hash hash;
  hash.Add(bytes);
  const auto digest = hash.Finish();
  return {digest.begin(), digest.end()};
}

// A tensor that has a name.
struct Named {
  std::string handle;
  v1::Tensor tensor;   // with its data
  std::string digest;  // empty: it cannot be asked for
  int content = -1;    // equal for names of the same memory
};

int64_t HeldBytes(const std::vector<Named>& tensors) {
  int64_t bytes = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    bool counted = false;
    for (size_t k = 0; k < i; ++k) counted |= tensors[k].content == tensors[i].content;
    if (!counted) bytes += static_cast<int64_t>(tensors[i].tensor.data().size());
  }
  return bytes;
}

// One Put, beside `named`, the tensors that are there.
class PutRun {
 public:
  PutRun(StreamServer* server, const std::vector<Named>* named, uint8_t flags)
      : server_(*server),
        named_(*named),
        flags_(flags),
        reader_(server->deps(), &context_, ConnectionPrincipal("fuzz")) {}

  // `added`: set where the tensor has a name at the end.
  std::string Run(FuzzInput* decisions, std::optional<Named>* added) {
    MakeHeader(decisions);
    absl::Status status = reader_.request().request().Admit("Put");
    if (!status.ok()) return status.ToString();
    std::string wrong = Feed(decisions, &status);
    if (wrong.empty() && status.ok()) wrong = Finish(&status, added);
    reader_.request().End(status);
    if (added->has_value() && (flags_ & kUnread) != 0) {
      reader_.request().request().TakeBackOutputs();
      added->reset();
    }
    return wrong;
  }

 private:
  void MakeHeader(FuzzInput* decisions) {
    v1::Tensor& tensor = *header_.mutable_tensor();
    tensor.set_data_type(static_cast<v1::DataType>(1 + decisions->Byte() % kDataTypeCount));
    ReadShape(decisions, &tensor);
    // Beside a dimension of 0 the others may overflow.
    is_giant_ = SendableBytes(tensor) < 0 ||
                std::any_of(tensor.shape().begin(), tensor.shape().end(),
                            [](int64_t dim) { return dim > StreamServer::kResidentBytesMax; });
    is_bad_ = tensor.shape().empty();
    v1::ExecuteRequest whole;
    *whole.add_inputs() = tensor;
    if (is_giant_) whole.mutable_inputs(0)->clear_shape();
    model_.emplace(whole);
    const std::string& data = model_->whole().inputs(0).data();
    if ((flags_ & kHasDigest) != 0) header_.set_sha256(Sha256Of(data));
    if ((flags_ & kHasData) != 0) tensor.set_data(data);
    if ((flags_ & kIsOdd) != 0) MakeOdd(decisions->Byte() % 8);
  }

  void MakeOdd(int choice) {
    is_bad_ |= choice >= 2;
    if (choice == 0) header_.set_sha256(std::string(32, 'x'));
    if (choice == 1) header_.set_device("cuda:9");
    if (choice == 2) header_.set_sha256("abc");
    if (choice == 3) header_.set_ttl_ns(-1);
    if (choice == 4) header_.set_ttl_ns(int64_t{1} << 62);
    if (choice == 5) header_.set_label(std::string(257, 'x'));
    if (choice == 6) header_.mutable_tensor()->set_handle("a handle");
    if (choice == 7) header_.mutable_tensor()->set_data(Data() + "x");
  }

  const std::string& Data() const { return model_->whole().inputs(0).data(); }
  int64_t bytes() const { return model_->bytes(0); }
  // The tensor finds its device, and room there.
  bool FitsThere() const {
    return header_.device().empty() &&
           HeldBytes(named_) + bytes() <= StreamServer::kResidentBytesMax;
  }

  absl::Status Read(const std::string& message, uint32_t seed) {
    const Slices slices = Sliced(message, seed);
    return reader_.Read(grpc::ByteBuffer(&slices[0], slices.size()));
  }

  std::string Feed(FuzzInput* decisions, absl::Status* status) {
    const uint8_t seed = decisions->Byte() % 16;
    if ((flags_ & kNoHeader) == 0)
      if (std::string wrong = FeedHeader(seed, status); !wrong.empty() || !status->ok())
        return wrong;
    for (int i = 0; i < kMessagesMax && !decisions->empty() && !is_giant_; ++i) {
      const uint8_t message_seed = decisions->Byte();
      if (message_seed == kEndOfPut) break;
      std::string wrong = FeedMessage(message_seed, MakeStreamMessage(decisions, *model_), status);
      if (is_unknown_) break;
      if (wrong.empty() && status->ok()) wrong = CheckBooks();
      if (wrong.empty() && status->ok() && message_seed >= 128) wrong = RunWindows();
      if (!wrong.empty() || !status->ok()) return wrong;
    }
    if (is_unknown_ || is_giant_)
      *status = absl::CancelledError("the model does not know what came");
    return "";
  }

  std::string FeedHeader(uint32_t seed, absl::Status* status) {
    v1::PutRequest message;
    *message.mutable_header() = header_;
    *status = Read(message.SerializeAsString(), seed);
    has_header_ = status->ok();
    if (is_giant_) return "";
    const std::string& data = header_.tensor().data();
    const bool may_ask = !header_.sha256().empty() && data.empty() && bytes() > 0;
    const bool right = !is_bad_ && (may_ask || FitsThere());
    if (status->ok() != right || (right && reader_.is_open() == may_ask))
      return absl::StrCat("the header: ", status->ToString(), ", open: ", reader_.is_open());
    if (!status->ok() || data.empty()) return "";
    v1::Chunk all;
    all.set_data(data);
    return model_->Add(all) ? CheckBooks() : "the model refuses the header's data";
  }

  std::string FeedMessage(uint8_t seed, const std::string& encoded, absl::Status* status) {
    v1::PutRequest message;
    const bool is_readable = message.ParseFromString(encoded);
    const bool has_room = reader_.is_open() || FitsThere();
    *status = Read(encoded, seed % 16);
    // A reader may pass over what a later field replaces, and the model knows one header alone.
    is_unknown_ = !is_readable || (message.has_header() && !has_header_);
    if (is_unknown_) return "";
    const bool may_come = has_header_ && message.has_chunk();
    const bool right = may_come && has_room && model_->Add(message.chunk());
    if (status->ok() != right)
      return absl::StrCat(message.ShortDebugString(), ": ", status->ToString());
    if (right) return std::string(reader_.request().CheckHeld().message());
    const bool is_mistake = !may_come || has_room;
    return absl::IsInvalidArgument(*status) == is_mistake ? "" : status->ToString();
  }

  std::string RunWindows() {
    if (!reader_.is_open()) return "";
    while (std::unique_ptr<Window> window = reader_.request().TakeWindow()) {
      if (reader_.HasDigest()) reader_.Hash(*window);
      const absl::StatusOr<std::string> ran = server_.Run(reader_.request().JobOf(window.get()));
      if (!ran.ok()) return absl::StrCat("window ", window->index, ": ", ran.status().ToString());
      if (!ran->empty()) return absl::StrCat("window ", window->index, " comes back");
      reader_.request().RecordRan(*window);
    }
    return "";
  }

  // Each byte counts once, and so much is reserved as was declared.
  std::string CheckBooks() {
    const int64_t received = reader_.request().received_bytes();
    if (received != model_->CameBytes(0))
      return absl::StrCat(received, " bytes came, by the model ", model_->CameBytes(0));
    const int64_t reserved = server_.deps()->engine->residents().usage(0).bytes;
    const int64_t expected = HeldBytes(named_) + (reader_.is_open() ? bytes() : 0);
    if (reserved == expected) return "";
    return absl::StrCat(reserved, " bytes are reserved, by the model ", expected);
  }

  // A tensor whose digest was stated and found right.
  const Named* Find(const std::string& digest) const {
    const v1::Tensor& wanted = header_.tensor();
    for (const Named& other : named_)
      if (!digest.empty() && other.digest == digest &&
          other.tensor.data_type() == wanted.data_type() &&
          std::equal(wanted.shape().begin(), wanted.shape().end(), other.tensor.shape().begin(),
                     other.tensor.shape().end()))
        return &other;
    return nullptr;
  }

  std::string Finish(absl::Status* status, std::optional<Named>* added) {
    if (std::string wrong = RunWindows(); !wrong.empty()) return wrong;
    *status = reader_.ReadEnd();
    bool right = has_header_;
    if (reader_.is_open()) {
      right = model_->Complete();
      if (reader_.request().AllRan() != right)
        return absl::StrCat("complete: ", right, ", all windows ran: ", !right);
      if (status->ok()) *status = reader_.NameTensor();
      right &= header_.sha256().empty() || header_.sha256() == Sha256Of(Data());
    } else if (has_header_) {
      right = header_.device().empty() && Find(header_.sha256()) != nullptr;
    }
    if (status->ok() != right) return absl::StrCat("the end: ", status->ToString());
    return right ? CheckNamed(added) : "";
  }

  std::string CheckNamed(std::optional<Named>* added) {
    const v1::PutResponse& response = reader_.response();
    const Named* const same = Find(header_.sha256());
    if (response.existed() != (same != nullptr) || response.bytes() != bytes() ||
        response.device() != "cpu")
      return absl::StrCat("the answer: ", response.ShortDebugString());
    Named named{response.handle(), header_.tensor(), header_.sha256()};
    named.tensor.set_data(same == nullptr ? Data() : same->tensor.data());
    if (same != nullptr) named.content = same->content;
    *added = std::move(named);
    return "";
  }

  StreamServer& server_;
  const std::vector<Named>& named_;
  const uint8_t flags_;
  v1::PutHeader header_;
  bool is_giant_ = false;  // more than a run can send, or no shape at all
  bool is_bad_ = false;    // the header has a mistake
  bool has_header_ = false;
  bool is_unknown_ = false;  // the reader may know more than the model
  std::optional<StreamModel> model_;
  grpc::CallbackServerContext context_;
  PutReader reader_;
};

// A sequence of Puts.
class PutsRun {
 public:
  explicit PutsRun(StreamServer* server) : server_(*server) {}

  std::string Run(FuzzInput* decisions) {
    std::string wrong;
    for (int i = 0; i < kPutsMax && !decisions->empty() && wrong.empty(); ++i) {
      const uint8_t flags = decisions->Byte();
      if ((flags & kFree) != 0 && !named_.empty()) wrong = FreeOldest();
      std::optional<Named> added;
      if (wrong.empty()) wrong = PutRun(&server_, &named_, flags).Run(decisions, &added);
      if (added.has_value() && added->content < 0) added->content = i;
      if (added.has_value()) named_.push_back(*std::move(added));
      if (wrong.empty()) wrong = CheckNames();
      if (!wrong.empty()) wrong = absl::StrCat("put ", i, ": ", wrong);
    }
    while (!named_.empty() && wrong.empty()) wrong = FreeOldest();
    return wrong;
  }

 private:
  std::string FreeOldest() {
    const std::string handle = named_.front().handle;
    const absl::string_view view = handle;
    const int64_t before = HeldBytes(named_);
    named_.erase(named_.begin());
    const Residents::Freed freed = residents().Free("", absl::MakeConstSpan(&view, 1));
    if (freed.bytes != before - HeldBytes(named_) || !freed.unknown.empty())
      return absl::StrCat("Free gives back ", freed.bytes, " bytes");
    return CheckNames();
  }

  // All tensors have their bytes, and there is nothing else.
  std::string CheckNames() {
    const Residents::Usage usage = residents().usage(0);
    if (usage.bytes != HeldBytes(named_) || usage.tensors != static_cast<int64_t>(named_.size()))
      return absl::StrCat(usage.tensors, " tensors of ", usage.bytes, " bytes are there, not ",
                          named_.size(), " of ", HeldBytes(named_));
    for (const Named& named : named_) {
      const absl::string_view view = named.handle;
      const auto uses = residents().Use("", absl::MakeConstSpan(&view, 1));
      if (!uses.ok()) return uses.status().ToString();
      const std::string& data = named.tensor.data();
      if (!data.empty() && std::memcmp((*uses)[0].content()->data(), data.data(), data.size()) != 0)
        return absl::StrCat("tensor ", named.handle, " has other bytes than came");
    }
    return "";
  }
  Residents& residents() { return server_.deps()->engine->residents(); }

  StreamServer& server_;
  std::vector<Named> named_;
};

}  // namespace

std::string FuzzPut(absl::string_view input) {
  static auto* const server = new StreamServer;
  SetLogLevel(LogLevel::kError);
  const google::protobuf::LogSilencer silencer;
  FuzzInput decisions(input);
  server->deps()->limits.stream_window_bytes = int64_t{1} << (4 + decisions.Byte() % 10);
  return PutsRun(server).Run(&decisions);
}

}  // namespace warpcall::testing
