#include "server/inspect/surroundings.h"

#include <utility>

namespace warpcall::inspect {
namespace {

constexpr int64_t kWaitNsMax = 50'000'000;
constexpr int64_t kPatienceNs = 1'000'000'000;
// The service's share of one core; a server without requests has none.
constexpr double kServiceShareMax = 0.05;
// Share that a server without requests takes to poll devices and timers.
constexpr double kIdleShareMax = 0.01;
constexpr int64_t kAtWorkNs = 1'000'000'000;
// Time that threads may wait for a core: the cost of waking them on a quiet machine, and a share of
// the sample.
constexpr double kWaitedNsMax = 100'000;
constexpr double kWaitedShareMax = 0.05;

class MachineSurroundings final : public Surroundings {
 public:
  MachineSurroundings(bool shares_cpu, std::unique_ptr<Machine> machine)
      : shares_cpu_(shares_cpu),
        machine_(std::move(machine)),
        service_ns_(machine_->ServiceNs()),
        looked_ns_(machine_->NowNs()) {}

  bool AwaitQuiet() override {
    const int64_t start_ns = machine_->NowNs();
    bool quiet = Quiet();
    while (!quiet && waited_ns_ < kPatienceNs && machine_->NowNs() - start_ns < kWaitNsMax) {
      machine_->Pause();
      quiet = Quiet();
    }
    if (!quiet) waited_ns_ += machine_->NowNs() - start_ns;
    return quiet;
  }

  void Begin() override {
    if (shares_cpu_)
      waited_for_core_ns_ = machine_->WaitedForCoreNs();
    else
      ServiceShare();
  }

  bool Disturbed(int64_t sample_ns) override {
    if (!shares_cpu_) return ServiceShare() > kServiceShareMax;
    return static_cast<double>(machine_->WaitedForCoreNs() - waited_for_core_ns_) >
           kWaitedNsMax + kWaitedShareMax * static_cast<double>(sample_ns);
  }

  bool ServerAtWork() const override { return looked_ns_ < at_work_until_ns_; }

 private:
  // The service's share since the last call.
  double ServiceShare() {
    const int64_t now_ns = machine_->NowNs();
    const int64_t service_ns = machine_->ServiceNs();
    const double share = static_cast<double>(service_ns - service_ns_) /
                         static_cast<double>(now_ns > looked_ns_ ? now_ns - looked_ns_ : 1);
    looked_ns_ = now_ns;
    service_ns_ = service_ns;
    if (share > kIdleShareMax) at_work_until_ns_ = now_ns + kAtWorkNs;
    return share;
  }

  bool Quiet() {
    const double share = ServiceShare();
    return share <= kServiceShareMax && !(shares_cpu_ && machine_->OthersReady());
  }

  const bool shares_cpu_;
  const std::unique_ptr<Machine> machine_;
  int64_t service_ns_;
  int64_t looked_ns_;
  int64_t at_work_until_ns_ = 0;
  int64_t waited_ns_ = 0;
  int64_t waited_for_core_ns_ = 0;
};

}  // namespace

std::unique_ptr<Surroundings> NewSurroundings(const DeviceProperties& device,
                                              std::unique_ptr<Machine> machine) {
  return std::make_unique<MachineSurroundings>(device.kind == DeviceKind::kCpu, std::move(machine));
}

}  // namespace warpcall::inspect
