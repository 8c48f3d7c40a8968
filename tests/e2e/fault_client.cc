// Clients at fault that use gRPC, in a process of their own: beside the clients that a test
// measures, in their process, gRPC's threads and locks would be shared with them.
//
//   fault_client never_reads ADDRESS TALLY_FILE
//   fault_client burst ADDRESS CONNECTIONS COUNT PAUSE_MS REFUSAL TALLY_FILE
//
// Says "ready" when it is connected and goes on until SIGTERM; then it finishes what it is at,
// writes its counts to TALLY_FILE and ends with 0.
#include <grpcpp/generic/generic_stub.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tests/e2e/raw_call.h"

namespace warpcall::testing {
namespace {

constexpr char kMethod[] = "/warpcall.v1.KernelService/Execute";
constexpr char kUsage[] =
    "usage: fault_client never_reads ADDRESS TALLY_FILE\n"
    "       fault_client burst ADDRESS CONNECTIONS COUNT PAUSE_MS REFUSAL TALLY_FILE\n";
// Between the requests of the client that never reads: one after the other, so that making the
// answers keeps nobody busy. What is measured is that they are held.
constexpr absl::Duration kNeverReadsPause = absl::Milliseconds(20);

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  return signals;
}

// Pauses; false when SIGTERM came before the end of it. Every thread blocks the signal.
bool Pause(absl::Duration duration) {
  const sigset_t signals = EndSignals();
  const timespec timeout = absl::ToTimespec(duration);
  return sigtimedwait(&signals, nullptr, &timeout) != SIGTERM;
}

void Await(grpc::CompletionQueue* queue) {
  void* tag;
  bool ok;
  if (!queue->Next(&tag, &ok)) std::abort();
}

void SayReady() {
  std::puts("ready");
  std::fflush(stdout);
}

// Never asks gRPC for an answer: that acknowledges what it has to, and takes no more than a window.
class NeverReads {
 public:
  explicit NeverReads(const std::shared_ptr<grpc::Channel>& channel)
      : message_(LargeAnswerRequest().SerializeAsString()),
        request_(&message_, 1),
        stub_(channel) {}
  ~NeverReads() {
    for (const auto& call : calls_) {
      call->context.TryCancel();
      call->stream->Finish(&call->status, nullptr);
      Await(&queue_);
    }
  }

  void Ask() {
    Call& call = *calls_.emplace_back(std::make_unique<Call>());
    call.stream = stub_.PrepareCall(&call.context, kMethod, &queue_);
    call.stream->StartCall(nullptr);
    Await(&queue_);
    call.stream->WriteLast(request_, {}, nullptr);
    Await(&queue_);
  }

  size_t asked() const { return calls_.size(); }

 private:
  struct Call {
    grpc::ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    grpc::Status status;
  };

  const grpc::Slice message_;
  const grpc::ByteBuffer request_;
  grpc::CompletionQueue queue_;
  grpc::GenericStub stub_;
  std::vector<std::unique_ptr<Call>> calls_;
};

// Some tenths of a millisecond on a lane: longer than it takes to receive, so that a burst of them
// has to wait.
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

// 0 without the trailer.
int PushbackMs(const grpc::ClientContext& context) {
  const auto& trailers = context.GetServerTrailingMetadata();
  const auto found = trailers.find("grpc-retry-pushback-ms");
  if (found == trailers.end()) return 0;
  return std::atoi(std::string(found->second.data(), found->second.size()).c_str());
}

struct Burst {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  size_t count;
  std::string refusal;  // what the message of a refusal has to contain
};

// What is neither done nor refused as it should be goes to stderr.
void Count(const Burst& burst, const grpc::Status& status, const grpc::ClientContext& context,
           Tally* tally) {
  const int pushback_ms = PushbackMs(context);
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

int RunNeverReads(const std::string& address, const std::string& tally_path) {
  const auto channel = ConnectOrSayWhy(address);
  if (channel == nullptr) return 1;
  NeverReads client(channel);
  SayReady();
  do client.Ask();
  while (Pause(kNeverReadsPause));
  return WriteTally(tally_path, absl::StrCat(client.asked()));
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

int Run(const std::vector<std::string>& words) {
  if (words.size() == 3 && words[0] == "never_reads") return RunNeverReads(words[1], words[2]);
  int connections = 0, pause_ms = 0;
  Burst burst;
  if (words.size() != 7 || words[0] != "burst" || !absl::SimpleAtoi(words[2], &connections) ||
      connections < 1 || !absl::SimpleAtoi(words[3], &burst.count) ||
      !absl::SimpleAtoi(words[4], &pause_ms) || pause_ms < 0) {
    std::fputs(kUsage, stderr);
    return 2;
  }
  burst.refusal = words[5];
  for (int i = 0; i < connections; ++i) {
    burst.channels.push_back(ConnectOrSayWhy(words[1]));
    if (burst.channels.back() == nullptr) return 1;
  }
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
