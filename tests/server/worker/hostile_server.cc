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

// Without what it checks no test would mean anything.
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
  Require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control_) == 0);
  Require(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, lane_) == 0);
  staging_ = memfd_create("test-staging", MFD_CLOEXEC);
  Require(ftruncate(staging_, kStagingBytes) == 0);
  const int file = memfd_create("test-mail", MFD_CLOEXEC);
  mail_ = *worker::MappedMail::Map(file, 1);
  worker_ = std::thread([this, file] {
    worker::ServeDevice({control_[1], staging_, file, {lane_[1]}},
                        {&CpuKernels(), &device_, [](void*, size_t) { return absl::OkStatus(); },
                         [] { return std::vector<DeviceErrorCount>(); }})
        .IgnoreError();
    close(file);
  });
  Require(worker::Receive<worker::Hello>(control_[0]).ok());
}

HostileServer::~HostileServer() {
  shutdown(control_[0], SHUT_RDWR);
  worker_.join();
  for (const int fd : {control_[0], control_[1], lane_[0], lane_[1]}) close(fd);
  close(staging_);
}

absl::Status HostileServer::ShareStaging(uint64_t bytes) {
  RETURN_IF_ERROR(worker::Send(control_[0], worker::StagingReady{bytes, 0}));
  ASSIGN_OR_RETURN(const worker::WireStatus status,
                   worker::Receive<worker::WireStatus>(control_[0]));
  return worker::FromWire(status);
}

absl::Status HostileServer::Run(const worker::RunRequest& request) {
  worker::LaneMail& mail = mail_.lane(0);
  RETURN_IF_ERROR(mail.requests.Put(request, lane_[0]));
  worker::RunReply reply;
  RETURN_IF_ERROR(mail.replies.Take(++sent_, {lane_[0], &places_}, &reply));
  return worker::FromWire(reply.status);
}

}  // namespace warpcall::testing
