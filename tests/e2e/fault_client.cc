// Clients at fault that use gRPC, in a process of their own: beside the clients that a test
// measures, in their process, gRPC's threads and locks would be shared with them.
//
//   fault_client burst ADDRESS CONNECTIONS COUNT PAUSE_MS REFUSAL TALLY_FILE
//   fault_client giants ADDRESS CONNECTIONS MIB TALLY_FILE
//
// Prints "ready" when it is connected and goes on until SIGTERM; then it finishes its current work,
// writes its counts to TALLY_FILE and ends with 0.
#include <grpcpp/generic/generic_stub.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/e2e/raw_call.h"

namespace warpcall::testing {
namespace {

constexpr char kMethod[] = "/warpcall.v1.KernelService/Execute";
constexpr char kStreamMethod[] = "/warpcall.v1.KernelService/ExecuteStream";
constexpr char kUsage[] =
    "usage: fault_client burst ADDRESS CONNECTIONS COUNT PAUSE_MS REFUSAL TALLY_FILE\n"
    "       fault_client giants ADDRESS CONNECTIONS MIB TALLY_FILE\n";
// Limit of a call's wait for an answer to its messages.
constexpr std::chrono::seconds kGiantSeconds{3};

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  return signals;
}

// Pauses; returns false if SIGTERM came before the end. Every thread blocks the signal.
bool Pause(absl::Duration duration) {
  const sigset_t signals = EndSignals();
  const timespec timeout = absl::ToTimespec(duration);
  return sigtimedwait(&signals, nullptr, &timeout) != SIGTERM;
}

bool Await(grpc::CompletionQueue* queue) {
  void* tag;
  bool ok;
  if (!queue->Next(&tag, &ok)) std::abort();
  return ok;
}

void SayReady() {
  std::puts("ready");
  std::fflush(stdout);
}

// Takes some tenths of a millisecond on a lane, longer than its reception, so that a burst of such
// requests has to wait.
v1::ExecuteRequest BurstRequest() {
  v1::ExecuteRequest request = Request("gelu", {FloatTensor(8192)});
  request.set_implementation("reference");
  return request;
}

struct Tally {
  int done = 0;
  int refused = 0;
  int wrong = 0;  // neither
};

struct Burst {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  size_t count;
  std::string refusal;  // text that a refusal's message must contain
};

// Prints a call that is neither done nor properly refused to stderr.
void Count(const Burst& burst, const grpc::Status& status, const grpc::ClientContext& context,
           Tally* tally) {
  const int pushback_ms = std::atoi(PushbackOf(context).c_str());
  if (status.ok()) {
    ++tally->done;
  } else if (status.error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED &&
             absl::StrContains(status.error_message(), burst.refusal) && pushback_ms >= 1) {
    ++tally->refused;
  } else {
    ++tally->wrong;
    std::fprintf(stderr, "code %d, pushback %d ms: %s\n", status.error_code(), pushback_ms,
                 status.error_message().c_str());
  }
}

// Sends all requests at once, spread over the channels, and waits for the answers.
void Send(const Burst& burst, const grpc::ByteBuffer& request, Tally* tally) {
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer response;
    grpc::Status status;
  };
  grpc::CompletionQueue queue;
  std::vector<Call> calls(burst.count);
  for (size_t i = 0; i < calls.size(); ++i) {
    Call& call = calls[i];
    call.context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    call.reader = grpc::GenericStub(burst.channels[i % burst.channels.size()])
                      .PrepareUnaryCall(&call.context, kMethod, request, &queue);
    call.reader->StartCall();
    call.reader->Finish(&call.response, &call.status, nullptr);
  }
  for (size_t i = 0; i < calls.size(); ++i) Await(&queue);
  for (const Call& call : calls) Count(burst, call.status, call.context, tally);
}

grpc::ByteBuffer ToMessage(const google::protobuf::MessageLite& message) {
  const grpc::Slice slice(message.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// Sends messages of many MiB from many connections at once, again and again: every second
// connection in calls of Execute, the others as chunks of an ExecuteStream whose first half never
// comes. All of them share one copy of the bytes.
class Giants {
 public:
  Giants(std::vector<std::shared_ptr<grpc::Channel>> channels, int64_t mib)
      : channels_(std::move(channels)) {
    const int64_t elements = mib << 18;
    const v1::ExecuteRequest execute = Request("identity", {FloatTensor(elements)});
    v1::ExecuteStreamRequest header, chunk;
    *header.mutable_header() = execute;
    header.mutable_header()->mutable_inputs(0)->clear_data();
    header.mutable_header()->mutable_inputs(0)->set_shape(0, 3 * elements);
    chunk.mutable_chunk()->set_offset(execute.inputs(0).data().size());
    chunk.mutable_chunk()->set_data(execute.inputs(0).data());
    execute_ = {ToMessage(execute)};
    stream_ = {ToMessage(header), ToMessage(chunk)};
  }

  // Until `over`; returns how many calls ended.
  int SendUntil(const std::atomic<bool>& over) {
    std::atomic<int> ended{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < channels_.size(); ++i)
      threads.emplace_back([&, i] {
        for (; !over; ++ended) Send(channels_[i], i % 2 == 0);
      });
    for (std::thread& thread : threads) thread.join();
    return ended;
  }

 private:
  // One call, until it ends.
  void Send(const std::shared_ptr<grpc::Channel>& channel, bool unary) const {
    grpc::CompletionQueue queue;
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kGiantSeconds);
    grpc::GenericStub stub(channel);
    const auto call = stub.PrepareCall(&context, unary ? kMethod : kStreamMethod, &queue);
    call->StartCall(nullptr);
    bool ok = Await(&queue);
    for (const grpc::ByteBuffer& message : unary ? execute_ : stream_) {
      if (!ok) break;
      call->Write(message, nullptr);
      ok = Await(&queue);
    }
    if (ok && unary) {
      call->WritesDone(nullptr);
      Await(&queue);
    }
    // Comes without anything when the server ends the call, or its deadline does.
    grpc::ByteBuffer answer;
    call->Read(&answer, nullptr);
    Await(&queue);
    grpc::Status status;
    call->Finish(&status, nullptr);
    Await(&queue);
  }

  const std::vector<std::shared_ptr<grpc::Channel>> channels_;
  std::vector<grpc::ByteBuffer> execute_, stream_;
};

// Null when there is no connection to be had.
std::shared_ptr<grpc::Channel> ConnectOrSayWhy(const std::string& address) {
  std::shared_ptr<grpc::Channel> channel = Connect(address);
  if (channel->GetState(false) == GRPC_CHANNEL_READY) return channel;
  std::fprintf(stderr, "no connection to %s\n", address.c_str());
  return nullptr;
}

int WriteTally(const std::string& path, const std::string& counts) {
  std::ofstream file(path);
  file << counts << "\n" << std::flush;
  if (file.good()) return 0;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return 1;
}

int RunBursts(const Burst& burst, absl::Duration pause, const std::string& tally_path) {
  const grpc::Slice slice(BurstRequest().SerializeAsString());
  const grpc::ByteBuffer request(&slice, 1);
  Tally tally;
  SayReady();
  do Send(burst, request, &tally);
  while (Pause(pause));
  return WriteTally(tally_path, absl::StrCat(tally.done, " ", tally.refused, " ", tally.wrong));
}

// Empty if a connection cannot be made.
std::vector<std::shared_ptr<grpc::Channel>> ConnectAll(const std::string& address, int count) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < count; ++i) {
    channels.push_back(ConnectOrSayWhy(address));
    if (channels.back() == nullptr) return {};
  }
  return channels;
}

int RunGiants(const std::string& address, int connections, int64_t mib,
              const std::string& tally_path) {
  auto channels = ConnectAll(address, connections);
  if (channels.empty()) return 1;
  Giants giants(std::move(channels), mib);
  SayReady();
  std::atomic<bool> over{false};
  int ended = 0;
  std::thread sender([&] { ended = giants.SendUntil(over); });
  while (Pause(absl::Hours(1))) {
  }
  over = true;
  sender.join();
  return WriteTally(tally_path, absl::StrCat(ended));
}

int Run(const std::vector<std::string>& words) {
  int connections = 0, pause_ms = 0;
  int64_t mib = 0;
  if (words.size() == 5 && words[0] == "giants" && absl::SimpleAtoi(words[2], &connections) &&
      connections >= 1 && absl::SimpleAtoi(words[3], &mib) && mib >= 1)
    return RunGiants(words[1], connections, mib, words[4]);
  Burst burst;
  if (words.size() != 7 || words[0] != "burst" || !absl::SimpleAtoi(words[2], &connections) ||
      connections < 1 || !absl::SimpleAtoi(words[3], &burst.count) ||
      !absl::SimpleAtoi(words[4], &pause_ms) || pause_ms < 0) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  burst.refusal = words[5];
  burst.channels = ConnectAll(words[1], connections);
  if (burst.channels.empty()) return 1;
  return RunBursts(burst, absl::Milliseconds(pause_ms), words[6]);
}

}  // namespace
}  // namespace warpcall::testing

int main(int argc, char** argv) {
  // All this before gRPC starts threads, which inherit it. The client's own work is not to be
  // measured, so it gives way to everyone; and it goes when the test does.
  const sigset_t signals = warpcall::testing::EndSignals();
  if (setpriority(PRIO_PROCESS, 0, 19) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 ||
      pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0) {
    std::perror("fault_client");
    return 1;
  }
  return warpcall::testing::Run({argv + 1, argv + argc});
}
