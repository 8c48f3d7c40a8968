#include "tests/server/worker/hostile_server.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <vector>

#include "proto/common/status_macros.h"
#include "server/worker/worker.h"

namespace warpcall::testing {
namespace {

// Ends the process if `fact` is false: no test would mean anything.
void Require(bool fact) {
  if (!fact) std::abort();
}

}  // namespace

worker::RunRequest GoodRunRequest() {
  const Kernel* const kernel = *CpuKernels().Find("gelu");
  Job job;
  job.op = kernel->op;
  job.row = &CpuKernels().rows()[static_cast<size_t>(kernel->rows[0])];
  job.problem = *MakeProblem(*kernel->op, {TensorSpec{DataType::kFloat32, {10, 100}}}, {});
  worker::RunRequest request = {};
  Require(worker::ToWire(job, &request).ok());
  request.offsets[1] = 8192;
  return request;
}

HostileServer::HostileServer() {
  auto control = process::MakeSockets(SOCK_STREAM);
  Require(control.ok());
  near_ = process::Channel(std::move(control->first));
  far_ = process::Channel(std::move(control->second));
  Require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lane_) == 0);
  staging_ = memfd_create("test-staging", MFD_CLOEXEC);
  Require(ftruncate(staging_, kStagingBytes) == 0);
  const int file = memfd_create("test-mail", MFD_CLOEXEC);
  mail_ = *worker::MappedMail::Map(file, 1);
  worker_ = std::thread([this, file] {
    worker::ServeDevice({&far_, staging_, file, {lane_[1]}},
                        {&CpuKernels(), &device_, [](void*, size_t) { return absl::OkStatus(); },
                         [] { return std::vector<DeviceErrorCount>(); }})
        .IgnoreError();
    close(file);
  });
  Require(near_.ReceiveStruct<worker::Hello>().ok());
}

HostileServer::~HostileServer() {
  near_.Shutdown();
  worker_.join();
  for (const int fd : lane_) close(fd);
  close(staging_);
}

absl::Status HostileServer::ShareStaging(uint64_t bytes) {
  RETURN_IF_ERROR(near_.SendStruct(worker::StagingReady{bytes, 0}));
  ASSIGN_OR_RETURN(const worker::WireStatus status, near_.ReceiveStruct<worker::WireStatus>());
  return worker::FromWire(status);
}

absl::Status HostileServer::Run(const worker::RunRequest& request) {
  worker::LaneMail& mail = mail_.lane(0);
  RETURN_IF_ERROR(mail.requests.Put(request, lane_[0]));
  worker::RunReply reply;
  RETURN_IF_ERROR(mail.replies.Take(++sent_, {lane_[0], &places_}, &reply));
  return worker::FromWire(reply.status);
}

absl::Status HostileServer::Allocate(const worker::Allocation& allocation) {
  worker::RunRequest request = {};
  worker::ToWire(allocation, &request);
  return Run(request);
}

void HostileServer::Free(uint64_t number) {
  Require(near_.SendStruct(worker::FreeResident{number}).ok());
}

}  // namespace warpcall::testing
