// Choosing among devices, in made-up time: clients, devices and the way between them are a list of
// events, so that every run is the same.
#include "server/engine/balancer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "proto/common/check.h"
#include "server/engine/service_history.h"
#include "tests/server/engine/engine_fixture.h"
#include "tests/server/nanoseconds.h"

namespace warpcall {
namespace {

using testing::kMillisecond;

constexpr int kDevices = 2;
constexpr int kLanes = 4;
constexpr Work kJobWork = {2 << 20, 5 << 18};

struct Scenario {
  int clients = 8;             // closed loop: each sends when it has its answer
  double pause_ns = 0;         // closed loop: the way there and back, on average
  double interarrival_ns = 0;  // open loop: between requests, on average; 0: closed loop
  double speeds[kDevices] = {1, 1};
  double job_ns = 150'000;  // on a device of speed 1, give or take a fifth
  // The first job loads code for later ones; jobs that start meanwhile wait for it.
  double loading_ns[kDevices] = {400e6, 250e6};
  double decoded_to_submitted_ns = 40'000;
  // Number of rows, each of which takes twice as long as the one before.
  int rows = 1;
  // Share of jobs that need a preparation, and its mean time, which neither their prediction nor
  // the history counts.
  double searches = 0;
  double search_ns = 0;
  // One lane prepares, one job after the other; otherwise lanes prepare, and other jobs wait.
  bool preparing_lane = true;
  // Number of counted answers, from when both devices have loaded: earlier ones show which loads
  // faster.
  double counted_from_ns = 500e6;
  int answers = 6000;
};

// Devices with lanes and a queue; chooses among them as the engine does.
class Simulation {
 public:
  explicit Simulation(const Scenario& scenario) : scenario_(scenario) {
    for (int i = 0; i < kDevices; ++i) balancer_.AddDevice(kLanes);
  }

  // Answers of each device.
  std::vector<int> Run() {
    if (scenario_.interarrival_ns > 0) {
      Arrive();
    } else {
      for (int i = 0; i < scenario_.clients; ++i)
        At(Random(scenario_.pause_ns), [this] { Send(); });
    }
    while (answered_ < scenario_.answers) {
      const auto next = events_.begin();
      now_ns_ = next->first;
      const std::function<void()> event = std::move(next->second);
      events_.erase(next);
      event();
    }
    std::vector<int> answers;
    for (const Served& device : devices_) answers.push_back(device.answers);
    return answers;
  }

 private:
  struct Waiting {
    std::shared_ptr<DeviceLoad> load;
    int row;
    bool searches;
  };

  struct Served {
    int running = 0;
    std::deque<Waiting> waiting;
    bool prepares = false;
    std::deque<Waiting> to_be_prepared;
    double searched_ns = 0;           // when those on the lanes are done: one is made at a time
    std::map<int, double> loaded_ns;  // by row: when
    int answers = 0;
  };

  void At(double ns, std::function<void()> event) {
    events_.emplace(now_ns_ + ns, std::move(event));
  }
  // Exponential: the elapsed part of a wait says nothing about the rest.
  double Random(double mean_ns) {
    const double uniform = (static_cast<double>(random_()) + 0.5) / 4294967296.0;
    return -mean_ns * std::log(uniform);
  }

  void Arrive() {
    Send();
    At(Random(scenario_.interarrival_ns), [this] { Arrive(); });
  }

  void Send() {
    const int all[kDevices] = {0, 1};
    const int row = static_cast<int>(random_() % static_cast<unsigned>(scenario_.rows));
    auto load =
        std::make_shared<DeviceLoad>(balancer_.Choose(all, history_.Predict(row, kJobWork).ns));
    At(Random(scenario_.decoded_to_submitted_ns), [this, load, row] {
      const int device = load->device();
      const bool searches = static_cast<double>(random_()) < scenario_.searches * 4294967296.0;
      const bool apart = searches && scenario_.preparing_lane;
      *load = apart
                  ? DeviceLoad()
                  : balancer_.Settle(std::move(*load), device, history_.Predict(row, kJobWork).ns);
      auto& queue = apart ? devices_[device].to_be_prepared : devices_[device].waiting;
      queue.push_back({load, row, searches});
      apart ? Prepare(device) : Start(device);
    });
  }

  void Prepare(int index) {
    Served& device = devices_[index];
    if (device.prepares || device.to_be_prepared.empty()) return;
    const auto [load, row, searches] = device.to_be_prepared.front();
    device.to_be_prepared.pop_front();
    device.prepares = true;
    const double ns = scenario_.job_ns * (1 << row) / scenario_.speeds[index];
    At(Random(scenario_.search_ns) + ns, [this, index, load = load, row = row, ns] {
      devices_[index].prepares = false;
      Answer(index, row, load.get(), ns);
      Prepare(index);
    });
  }

  void Start(int index) {
    Served& device = devices_[index];
    if (device.running == kLanes || device.waiting.empty()) return;
    const auto [load, row, searches] = device.waiting.front();
    device.waiting.pop_front();
    ++device.running;
    const double spread = 0.8 + 0.4 * (static_cast<double>(random_()) / 4294967296.0);
    const double loaded_ns =
        device.loaded_ns.try_emplace(row, now_ns_ + scenario_.loading_ns[index]).first->second;
    const double ns = std::max(0.0, loaded_ns - now_ns_) +
                      scenario_.job_ns * (1 << row) * spread / scenario_.speeds[index];
    if (searches)
      device.searched_ns = std::max(device.searched_ns, now_ns_) + Random(scenario_.search_ns);
    At(ns + (searches ? device.searched_ns - now_ns_ : 0),
       [this, index, load = load, row = row, ns] {
         --devices_[index].running;
         Answer(index, row, load.get(), ns);
         Start(index);
       });
  }

  void Answer(int index, int row, DeviceLoad* load, double ns) {
    Served& device = devices_[index];
    history_.Record(row, {kJobWork}, static_cast<int64_t>(ns));
    *load = DeviceLoad();
    if (now_ns_ >= scenario_.counted_from_ns) {
      ++device.answers;
      ++answered_;
    }
    if (scenario_.interarrival_ns == 0) At(Random(scenario_.pause_ns), [this] { Send(); });
  }

  const Scenario scenario_;
  Balancer balancer_;
  ServiceHistory history_{scenario_.rows};
  std::mt19937 random_{20260101};
  double now_ns_ = 0;
  std::multimap<double, std::function<void()>> events_;
  Served devices_[kDevices];
  int answered_ = 0;
};

double RatioOf(const Scenario& scenario) {
  const std::vector<int> answers = Simulation(scenario).Run();
  return static_cast<double>(answers[0]) / std::max(1, answers[1]);
}

void ExpectWithin15Percent(double ratio, double of) {
  EXPECT_LE(ratio, of * 1.15);
  EXPECT_GE(ratio, of / 1.15);
}

// The way to the server and back takes longer than the work, as with 1 MiB over a principal: most
// requests find both devices idle.
TEST(BalancerTest, ClientsThatWaitForTheirAnswersAreSpreadEvenly) {
  for (const double pause_ns : {100'000.0, 1'000'000.0, 5'000'000.0})
    for (const int clients : {1, 2, 8, 32}) {
      SCOPED_TRACE(::testing::Message() << clients << " clients, " << pause_ns << " ns on the way");
      ExpectWithin15Percent(RatioOf({.clients = clients, .pause_ns = pause_ns}), 1);
    }
}

TEST(BalancerTest, RequestsThatComeWhenTheyComeAreSpreadEvenly) {
  for (const double utilization : {0.05, 0.3, 0.7, 0.95}) {
    SCOPED_TRACE(utilization);
    ExpectWithin15Percent(
        RatioOf({.interarrival_ns = 150'000.0 / (kDevices * kLanes) / utilization}), 1);
  }
}

// One device has four fifths of the speed: while it can keep up it may do its half; where the
// devices are the limit, each does all it can.
TEST(BalancerTest, ASlowerDeviceGetsWhatItCanDo) {
  for (const int clients : {8, 32}) {
    SCOPED_TRACE(clients);
    const double light =
        RatioOf({.clients = clients, .pause_ns = 150'000.0 * clients, .speeds = {0.8, 1}});
    EXPECT_GE(light, 0.8 / 1.15);
    EXPECT_LE(light, 1.15);
  }
  ExpectWithin15Percent(RatioOf({.clients = 32, .pause_ns = 1000, .speeds = {0.8, 1}}), 0.8);
  const double capacity_per_ns = 1.8 * kLanes / 150'000.0;
  ExpectWithin15Percent(
      RatioOf({.interarrival_ns = 1 / (0.97 * capacity_per_ns), .speeds = {0.8, 1}}), 0.8);
}

// Most of the time each device runs a search of unknown length. Predictions differ by some
// microseconds then, which must not send everything the same way.
TEST(BalancerTest, SearchesDoNotSendTheRestElsewhere) {
  for (const double searches : {0.1, 0.3, 0.6})
    for (const double search_ns : {20e6, 60e6, 100e6})
      for (const int clients : {4, 6, 8}) {
        SCOPED_TRACE(::testing::Message() << clients << " clients, of whose requests " << searches
                                          << " are searched for, for " << search_ns << " ns");
        ExpectWithin15Percent(RatioOf({.clients = clients,
                                       .pause_ns = 5e6,
                                       .job_ns = 20'000,
                                       .rows = 3,
                                       .searches = searches,
                                       .search_ns = search_ns,
                                       .counted_from_ns = 1.5e9,
                                       .answers = 1400}),
                              1);
      }
}

// Each row is loaded by its first job on each device; that time must not count for later jobs.
TEST(BalancerTest, RowsThatAreLoadedDoNotSendTheRestElsewhere) {
  for (const int clients : {4, 6, 8}) {
    SCOPED_TRACE(clients);
    ExpectWithin15Percent(RatioOf({.clients = clients,
                                   .pause_ns = 5e6,
                                   .job_ns = 10,
                                   .rows = 12,
                                   .searches = 0.1,
                                   .search_ns = 100e6,
                                   .counted_from_ns = 0,
                                   .answers = 2000}),
                          1);
  }
}

TEST(BalancerTest, WorkIsOnTheBooksFromTheChoiceToTheEnd) {
  Balancer balancer;
  for (int i = 0; i < 3; ++i) balancer.AddDevice(kLanes);
  const int pair[] = {1, 2};
  DeviceLoad first = balancer.Choose(pair, 100 * kMillisecond);
  DeviceLoad second = balancer.Choose(pair, 50 * kMillisecond);
  EXPECT_EQ(first.device(), 1);
  EXPECT_EQ(second.device(), 2);
  DeviceLoad third = balancer.Choose(pair, 40 * kMillisecond);
  EXPECT_EQ(third.device(), 2);
  EXPECT_EQ(balancer.load_ns(2), 90 * kMillisecond);
  first = balancer.Settle(std::move(first), 1, 70 * kMillisecond);  // predicted anew
  EXPECT_EQ(balancer.load_ns(1), 70 * kMillisecond);
  first = balancer.Settle(std::move(first), 0, 70 * kMillisecond);  // settled elsewhere
  EXPECT_EQ(balancer.load_ns(0), 70 * kMillisecond);
  EXPECT_EQ(balancer.load_ns(1), 0);
  const DeviceLoad moved = std::move(second);
  EXPECT_EQ(balancer.load_ns(2), 90 * kMillisecond);
  third = DeviceLoad();
  EXPECT_EQ(balancer.load_ns(2), 50 * kMillisecond);
  { const DeviceLoad dropped = balancer.Settle({}, 2, 5 * kMillisecond); }
  EXPECT_EQ(balancer.load_ns(2), 50 * kMillisecond);
}

TEST(BalancerTest, EqualsTakeTurnsWhateverTheyWereThoughtToDo) {
  Balancer balancer;
  for (int i = 0; i < 3; ++i) balancer.AddDevice(kLanes);
  const int all[] = {0, 1, 2};
  std::vector<int> turns;
  for (const int64_t ns : {1'000'000'000, 1, 1, 1, 1, 1})
    turns.push_back(balancer.Choose(all, ns).device());
  EXPECT_EQ(turns, (std::vector<int>{0, 1, 2, 0, 1, 2}));
}

TEST(BalancerTest, WhatDiffersLittleCountsAsEqualAndAFreeLaneBeforeATurn) {
  Balancer balancer;
  for (int i = 0; i < 2; ++i) balancer.AddDevice(kLanes);
  const int all[] = {0, 1};
  std::vector<DeviceLoad> loads;
  const auto choose = [&](int64_t ns) {
    loads.push_back(balancer.Choose(all, ns));
    return loads.back().device();
  };
  EXPECT_EQ(choose(20'000), 0);
  EXPECT_EQ(choose(90'000), 1);
  EXPECT_EQ(choose(10), 0);
  EXPECT_EQ(choose(10), 1);  // 90 us, not 20, but its turn
  EXPECT_EQ(choose(50'000), 0);
  EXPECT_EQ(choose(200'000), 1);
  EXPECT_EQ(choose(10), 0);  // 290 us there
  EXPECT_EQ(choose(10), 0);  // the other's turn, which is too far ahead
  loads[5] = DeviceLoad();   // it ends: equal again, and device 0 has a job in each lane
  EXPECT_EQ(choose(10), 1);
  EXPECT_EQ(choose(10), 1);
}

TEST(BalancerDeathTest, KnowsTheDevicesThatItIsAskedFor) {
  Balancer balancer;
  balancer.AddDevice(1);
  EXPECT_DEATH(balancer.Choose({}, 1), "!devices.empty");
  EXPECT_DEATH(balancer.Settle(DeviceLoad(), 1, 1), "devices_.size");
  if (!WARPCALL_DCHECK_IS_ON) return;
  const DeviceLoad load = balancer.Choose({0}, 1);
  EXPECT_DEATH(balancer.AddDevice(1), "turns_ == 0");
}

// The engine's balance of jobs over devices; balancer_test covers loads of many clients.

class EngineBalanceTest : public testing::EngineTest {
 protected:
  Candidate Choose() const { return Choose(problem_); }
  Candidate Choose(const Problem& problem) const {
    return *engine_->Choose(kernel_, "", "", problem);
  }

  void RunAs(Candidate choice) {
    testing::Call call;
    call.trace.work = kernel_.op->work(problem_);
    std::unique_ptr<Job> job = MakeJob(&call, 100, choice.device);
    job->load = std::move(choice.load);
    Run(&call, std::move(job));
    ASSERT_TRUE(call.status.ok()) << call.status;
  }

  const Kernel& kernel_ = **registry_.Find("double");
  const Problem problem_ = *MakeProblem(*kernel_.op, {TensorSpec{DataType::kFloat32, {100}}}, {});
};

// A device's first job loads code for later ones. Predictions follow the second of the two, and
// work assigned meanwhile must not count against a device for good.
TEST_F(EngineBalanceTest, WhatWasThoughtLongOnceDoesNotTiltTheBalance) {
  for (testing::FakeDevice::Control& control : control_)
    control.on_operation = [this, first = true](const char*) mutable {
      now_ns_ += std::exchange(first, false) ? 300'000'000 : 10'000;
      return absl::OkStatus();
    };
  int answers[2] = {0, 0};
  for (int i = 0; i < 400; ++i) {
    Candidate choice = Choose();
    ++answers[choice.device];
    RunAs(std::move(choice));
  }
  EXPECT_LE(std::abs(answers[0] - answers[1]), 400 * 7 / 100) << answers[0] << ":" << answers[1];
}

TEST_F(EngineBalanceTest, WhatWasChosenAndNotYetSubmittedCounts) {
  std::vector<Candidate> choices;
  int chosen[2] = {0, 0};
  for (int i = 0; i < 8; ++i) {
    choices.push_back(Choose());
    ++chosen[choices.back().device];
  }
  EXPECT_EQ(chosen[0], 4);
  EXPECT_EQ(chosen[1], 4);
}

TEST_F(EngineBalanceTest, WhatWasChosenAndNotYetSubmittedCountsByItsWork) {
  const Problem large =
      *MakeProblem(*kernel_.op, {TensorSpec{DataType::kFloat32, {int64_t{1} << 30}}}, {});
  const Candidate long_one = Choose(large);
  std::vector<Candidate> choices;
  for (int i = 0; i < 8; ++i) {
    choices.push_back(Choose());
    EXPECT_NE(choices.back().device, long_one.device);
  }
}

}  // namespace
}  // namespace warpcall
