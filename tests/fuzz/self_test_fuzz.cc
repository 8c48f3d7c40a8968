// Children of the self-test whose reports the input describes; some of their packets are raw input.
#include <sys/socket.h>

#include <cmath>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/gelu/gelu.h"
#include "kernels/identity/identity.h"
#include "proto/common/status_macros.h"
#include "server/self_test/self_test.h"
#include "tests/fuzz/edited.h"
#include "tests/fuzz/targets.h"

namespace warpcall::testing {
namespace {

using self_test::Report;
using self_test::SelfTest;
using self_test::Verdict;

constexpr int kReportsMax = 64;

const Registry& TwoKernels() {
  static const Registry* const registry = [] {
    auto* created = new Registry;
    created->Add(IdentityOp(), IdentityCpuRows());
    created->Add(GeluOp(), GeluCpuRows());
    return created;
  }();
  return *registry;
}

// All children's reports together; each child goes on where the one before it ended.
class Children {
 public:
  explicit Children(FuzzInput* decisions) : decisions_(*decisions) {}

  // Starts a child that has sent all its reports and is gone.
  absl::StatusOr<std::unique_ptr<process::Child>> Start() {
    std::pair<Descriptor, Descriptor> sockets;
    ASSIGN_OR_RETURN(sockets, process::MakeSockets(SOCK_STREAM));
    const process::Channel far(std::move(sockets.second));
    for (int i = 0; i < kReportsMax && !decisions_.empty(); ++i) {
      const uint8_t kind = decisions_.Byte();
      if (kind == 0xFF) break;
      if (kind % 16 == 15) {
        const absl::string_view packet = decisions_.Take(kind);
        // Send the packet as a message, or raw.
        if (kind >= 128)
          far.Send("", packet).IgnoreError();
        else if (!packet.empty())
          send(far.socket(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        continue;
      }
      Tell(far, kind);
    }
    return std::make_unique<process::Child>(process::Channel(std::move(sockets.first)));
  }

  // Rows that a report said had passed.
  const std::set<int>& passed() const { return passed_; }

 private:
  // Reports a row that starts and passes, or any kind with some of its bytes changed.
  void Tell(const process::Channel& far, uint8_t kind) {
    Report report;
    report.row = kind / 16 % 8;
    report.data_types = 2;
    report.kind = Report::Kind::kStarted;
    if (kind % 2 == 0) far.SendStruct(report).IgnoreError();
    report.kind = Report::Kind::kPassed;
    report = kind % 16 < 8 ? report : Edited(report, &decisions_);
    if (report.kind == Report::Kind::kPassed) passed_.insert(report.row);
    far.SendStruct(report).IgnoreError();
  }

  FuzzInput& decisions_;
  std::set<int> passed_;
};

std::string CheckVerdict(const Verdict& verdict, const Children& children) {
  const bool offered = verdict.unavailable.reason.empty();
  if (offered && children.passed().count(verdict.row) == 0)
    return absl::StrCat("row ", verdict.row, " is offered, and nobody said that it passed");
  if (verdict.ns < 0) return absl::StrCat("row ", verdict.row, " took ", verdict.ns, " ns");
  for (const DataType type : verdict.data_types)
    if (static_cast<int>(type) < 1 || static_cast<int>(type) > kDataTypeCount)
      return "a data type that there is not";
  const ServiceRate& rate = verdict.rate;
  if (verdict.has_rate &&
      !(std::isfinite(rate.fixed_ns) && rate.bytes_per_ns > 0 && rate.flops_per_ns > 0))
    return "a rate that is none";
  return "";
}

}  // namespace

std::string FuzzSelfTest(absl::string_view input) {
  FuzzInput decisions(input);
  Children children(&decisions);
  SelfTest::Options options;
  options.subjects = {{"cpu", DeviceKind::kCpu}};
  options.row_ns_max = 2'000'000'000;
  options.start = [&](const std::string&, const std::vector<int>&) { return children.Start(); };
  std::vector<Verdict> verdicts;
  {
    SelfTest test(TwoKernels(), std::move(options));
    verdicts = test.Await();
  }
  if (verdicts.size() != TwoKernels().rows().size())
    return absl::StrCat(verdicts.size(), " verdicts of ", TwoKernels().rows().size(), " rows");
  for (size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i].row != static_cast<int>(i)) return absl::StrCat("no verdict of row ", i);
    if (std::string wrong = CheckVerdict(verdicts[i], children); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace warpcall::testing
