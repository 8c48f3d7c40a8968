// Reads and writes BenchmarkStream's messages; transport is elsewhere. Internal to the library.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/cpp/codec/codec.h"
#include "client/cpp/rpc/channel.h"
#include "warpcall/inspect.h"

namespace warpcall::client {

// One benchmark over one stream.
class BenchmarkSession final : public StreamHandler {
 public:
  // `watch` and `report`, which it adds to, outlive the session.
  BenchmarkSession(std::string request, const BenchmarkWatch& watch, BenchmarkReport* report)
      : request_(std::move(request)), watch_(watch), report_(report) {}

  absl::StatusOr<std::vector<Piece>> NextMessage() override;
  // INTERNAL for an implementation that came before.
  absl::Status HandleMessage(Fragments message) override;

  // REQUIRES: no other thread uses the session.
  bool begun() const { return begun_; }

 private:
  const std::string request_;
  const BenchmarkWatch& watch_;
  BenchmarkReport* const report_;
  bool sent_ = false;   // the sending thread's
  bool begun_ = false;  // the receiving thread's: something came
};

}  // namespace warpcall::client
