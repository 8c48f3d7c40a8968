#include "tests/bench/soak_connection.h"

#include <grpcpp/client_context.h>

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/common/status_macros.h"
#include "tests/bench/transport_caller.h"
#include "tests/e2e/raw_call.h"

namespace warpcall::bench {
namespace {

constexpr char kMethod[] = "/warpcall.v1.KernelService/Execute";
constexpr int64_t kOnTheirWayMax = 4;
// One of so many responses is compared with its request, if it is of identity.
constexpr int64_t kComparedEvery = 16;

}  // namespace

struct SoakConnection::Flight {
  SoakRequest request;
  grpc::ClientContext context;
  grpc::Status status;
  grpc::ByteBuffer response;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
};

SoakConnection::SoakConnection(const SoakConnectionOptions& options)
    : device_(options.device),
      mix_(options.data, options.seed),
      stub_(testing::Connect(options.address)) {}

SoakConnection::~SoakConnection() {
  queue_.Shutdown();
  void* tag;
  for (bool ok; queue_.Next(&tag, &ok);) delete static_cast<Flight*>(tag);
}

void SoakConnection::Start(SoakRequest request) {
  auto flight = std::make_unique<Flight>();
  flight->request = std::move(request);
  flight->context.set_deadline(std::chrono::system_clock::now() +
                               std::chrono::seconds(kCallTimeoutSeconds));
  flight->reader =
      stub_.PrepareUnaryCall(&flight->context, kMethod, Encode(flight->request, device_), &queue_);
  flight->reader->StartCall();
  input_bytes_ += flight->request.InputBytes();
  ++on_their_way_;
  Flight* const tag = flight.release();  // until the queue gives it back
  tag->reader->Finish(&tag->response, &tag->status, tag);
}

absl::Status SoakConnection::Land() {
  void* tag = nullptr;
  bool ok = false;
  queue_.Next(&tag, &ok);
  const std::unique_ptr<Flight> flight(static_cast<Flight*>(tag));
  --on_their_way_;
  if (!flight->status.ok())
    return absl::Status(static_cast<absl::StatusCode>(flight->status.error_code()),
                        absl::StrCat(flight->request.kernel, " of ", flight->request.InputBytes(),
                                     " bytes: ", flight->status.error_message()));
  return CheckResponse(flight->request, &flight->response, answers_++ % kComparedEvery == 0);
}

absl::Status SoakConnection::Run(int64_t small, int64_t large) {
  absl::Status status;
  const int64_t total = small + large;
  int64_t large_started = 0;
  for (int64_t i = 0; i < total && status.ok(); ++i) {
    const bool is_large = large * (i + 1) / total > large_started;
    if (is_large) ++large_started;
    Start(is_large ? mix_.Large() : mix_.Small());
    if (on_their_way_ >= kOnTheirWayMax) status = Land();
  }
  while (on_their_way_ > 0) status.Update(Land());
  return status;
}

absl::Status SoakConnection::RunLargest() {
  Start(mix_.Largest());
  return Land();
}

}  // namespace warpcall::bench
