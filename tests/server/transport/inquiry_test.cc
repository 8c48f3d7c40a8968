#include "server/transport/inquiry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "server/engine/engine.h"
#include "server/runtime/cpu/cpu_device.h"
#include "tests/server/fake_device.h"
#include "tests/server/inspect/timed_device.h"
#include "tests/temp_folder.h"

namespace warpcall {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CheckInspectAccess, LocalTakesLoopbackAddressesAndUnixSockets) {
  for (const char* const peer : {"unix:", "unix:/run/w.sock", "ipv4:127.0.0.1:40000",
                                 "ipv4:127.9.8.7:1", "ipv6:[::1]:40000", "ipv6:%5B::1%5D:40000"})
    EXPECT_TRUE(CheckInspectAccess(InspectAccess::kLocal, peer).ok()) << peer;
  for (const char* const peer : {"ipv4:10.0.0.1:40000", "ipv4:192.168.127.1:127", "ipv4:12.7.0.1:1",
                                 "ipv6:[2001:db8::1]:1", "ipv6:%5B::1:2%5D:1", "", "unknown"}) {
    const absl::Status status = CheckInspectAccess(InspectAccess::kLocal, peer);
    EXPECT_TRUE(absl::IsPermissionDenied(status)) << peer;
    EXPECT_TRUE(absl::StrContains(status.message(), peer)) << status;
  }
}

TEST(CheckInspectAccess, OnTakesEverybodyAndOffNobody) {
  for (const char* const peer : {"unix:", "ipv4:10.0.0.1:40000"}) {
    EXPECT_TRUE(CheckInspectAccess(InspectAccess::kOn, peer).ok());
    EXPECT_TRUE(absl::IsPermissionDenied(CheckInspectAccess(InspectAccess::kOff, peer)));
  }
}

TEST(DeviceNsOf, CountsWhatWasTimed) {
  v1::BenchmarkResponse benchmark;
  for (const double mean_ns : {1000.0, 3.5}) {
    v1::BenchmarkResult* const result = benchmark.add_results();
    result->set_mean_ns(mean_ns);
    result->set_iterations(10);
    result->set_launches_per_iteration(4);
  }
  EXPECT_EQ(DeviceNsOf(Inspection::kBenchmark, benchmark.SerializeAsString()), 40'140);
  EXPECT_EQ(DeviceNsOf(Inspection::kTune, benchmark.SerializeAsString()), 40'140);
  v1::ProfileResponse profile;
  for (const char* const kind : {"kernel", "copy", "set", "gap", "host"}) {
    v1::ProfileRow* const row = profile.add_rows();
    row->set_kind(kind);
    row->set_total_ns(100);
  }
  EXPECT_EQ(DeviceNsOf(Inspection::kProfile, profile.SerializeAsString()), 300);
  EXPECT_EQ(DeviceNsOf(Inspection::kDescribe, profile.SerializeAsString()), 0);
}

// The answering process may be corrupted by the kernel that it profiles.
TEST(DeviceNsOf, TakesNoNonsense) {
  EXPECT_EQ(DeviceNsOf(Inspection::kBenchmark, "\xff\xff"), 0);
  v1::BenchmarkResponse response;
  v1::BenchmarkResult* const result = response.add_results();
  result->set_iterations(1);
  result->set_launches_per_iteration(1);
  for (const double mean_ns : {-5.0, std::numeric_limits<double>::quiet_NaN()}) {
    result->set_mean_ns(mean_ns);
    EXPECT_EQ(DeviceNsOf(Inspection::kBenchmark, response.SerializeAsString()), 0);
  }
  result->set_mean_ns(std::numeric_limits<double>::infinity());
  EXPECT_EQ(DeviceNsOf(Inspection::kBenchmark, response.SerializeAsString()),
            1'000'000'000'000'000);
}

// Answers of a Tune of gelu, row by row.
class LearnFromTest : public ::testing::Test {
 protected:
  LearnFromTest() { table_.AddDevice(device_); }

  static Registry CpuRegistry() {
    Registry registry;
    AddCpuKernels(&registry);
    return registry;
  }

  v1::BenchmarkResult* Add(const std::string& row, double median_ns) {
    v1::BenchmarkResult* const result = response_.add_results();
    result->mutable_launch()->set_variant(row);
    result->set_median_ns(median_ns);
    result->set_median_low_ns(median_ns);
    result->set_median_high_ns(median_ns);
    result->set_checked_elements(10);
    result->set_max_error(0.5);
    return result;
  }
  // Names of the right rows, "!", and names of the wrong ones.
  std::string Learned() {
    auto cache = TuningCache::Open(registry_, &table_, folder_.Path("tuning"));
    EXPECT_TRUE(cache.ok()) << cache.status();
    ExecuteDeps deps{.registry = &registry_};
    deps.tuning = cache->get();
    const Kernel& kernel = **registry_.Find("gelu");
    const Problem problem = *MakeProblem(*kernel.op, {{DataType::kFloat32, {64}}}, {});
    LearnFrom(deps, {kernel.id, problem, device_}, response_.SerializeAsString());
    // The cache must be able to read its own file again.
    TuningTable again(registry_);
    again.AddDevice(device_);
    EXPECT_EQ((*TuningCache::Open(registry_, &again, folder_.Path("tuning")))->errors().read, 0);
    const auto tuned = again.Find(kernel, problem, 0);
    if (tuned == nullptr) return "nothing";
    const auto name = [&](int row) {
      return std::string(registry_.rows()[static_cast<size_t>(row)].implementation.name);
    };
    std::string names;
    for (const RightRow& right : tuned->right) names += name(right.row) + " ";
    names += "!";
    for (const WrongRow& wrong : tuned->wrong) names += " " + name(wrong.row);
    return names;
  }

  testing::TempFolder folder_;
  const Registry registry_ = CpuRegistry();
  TuningTable table_{registry_};
  DeviceProperties device_;
  v1::BenchmarkResponse response_;
};

TEST_F(LearnFromTest, RowsThatWereCheckedAreRightOrWrong) {
  Add("float64", 30);
  Add("chain_of_loops", 20)->set_unstable(true);
  Add("simd_fused", 10)->set_max_error(1.01);
  EXPECT_EQ(Learned(), "chain_of_loops float64 ! simd_fused");
}

TEST_F(LearnFromTest, WhatWasNotCheckedOrIsNoTimeIsNeither) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Add("simd_fused", 10)->set_checked_elements(0);
  EXPECT_EQ(Learned(), "nothing");
  Add("float64", 10)->set_error("not reached before the call's deadline");
  Add("chain_of_loops", 10)->set_relative_error(0.9);
  Add("no_such_row", 10);
  for (const double ns : {kNan, kInfinity, -1.0, 0.0}) Add("chain_of_loops", ns);
  EXPECT_EQ(Learned(), "nothing");
  Add("chain_of_loops", 10)->set_max_error(kNan);
  EXPECT_EQ(Learned(), "! chain_of_loops");
}

TEST_F(LearnFromTest, AWrongSpecialValueIsWrongWithoutBoundsToo) {
  Add("chain_of_loops", 10)->set_relative_error(std::numeric_limits<double>::quiet_NaN());
  Add("simd_fused", 10)->set_relative_error(std::numeric_limits<double>::infinity());
  for (v1::BenchmarkResult& result : *response_.mutable_results()) result.set_max_error(0);
  EXPECT_EQ(Learned(), "! chain_of_loops simd_fused");
}

// The output may be infinite if the truth is near infinity; that says nothing of the row's speed.
TEST_F(LearnFromTest, ASpecialValueThatTheBoundsAllowIsNotWrong) {
  Add("simd_fused", 10)->set_relative_error(std::numeric_limits<double>::infinity());
  EXPECT_EQ(Learned(), "nothing");
}

TEST_F(LearnFromTest, WhatIsNoResponseTeachesNothing) {
  LearnFrom({.registry = &registry_}, {0, Problem(), device_}, "\xff\xff");
  EXPECT_EQ(Learned(), "nothing");
}

// Engines that never run anything.
class AskedEngineTest : public ::testing::Test {
 protected:
  AskedEngineTest() { AddCpuKernels(&registry_); }

  int RowNamed(const std::string& name) const {
    return *absl::c_find_if(gelu().rows, [&](int id) {
      return name == registry_.rows()[static_cast<size_t>(id)].implementation.name;
    });
  }
  const Kernel& gelu() const { return **registry_.Find("gelu"); }
  ExecuteDeps DepsWith(const std::vector<DeviceKind>& kinds) {
    std::vector<std::unique_ptr<Device>> devices;
    for (const DeviceKind kind : kinds)
      devices.push_back(
          std::make_unique<testing::FakeDevice>(&control_, DeviceKindName(kind), kind));
    auto engine = Engine::Create(registry_, std::move(devices), {});
    EXPECT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    return {.registry = &registry_, .engine = engine_.get()};
  }

  // Index of the device that a Benchmark of gelu chooses.
  int DeviceOf(const std::vector<std::string>& implementations, const std::string& device,
               ExecuteDeps* deps) {
    v1::BenchmarkRequest request;
    request.set_kernel("gelu");
    request.mutable_implementations()->Assign(implementations.begin(), implementations.end());
    request.set_device(device);
    v1::TensorSpec* const input = request.add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->add_shape(64);
    deps->limits.benchmark_bytes_max = 1 << 20;
    deps->clock = MonotonicNs;
    grpc::CallbackServerContext context;
    Request read(deps, &context, ConnectionPrincipal("test"));
    std::string bytes = request.SerializeAsString();
    const auto operand_bytes = ReadBenchmark(*deps, &bytes, &read);
    EXPECT_TRUE(operand_bytes.ok()) << operand_bytes.status();
    return read.trace().device;
  }

  testing::FakeDevice::Control control_;
  Registry registry_;
  std::unique_ptr<Engine> engine_;
};

// It was the fastest where a library was, or before a driver was updated.
TEST_F(AskedEngineTest, AClassNamesTheFirstRowThatRunsHere) {
  registry_.SetAvailability(RowNamed("simd_fused"), {Unavailability::Cause::kLibrary, "not here"});
  const ExecuteDeps deps = DepsWith({DeviceKind::kCpu});
  TunedClass tuned;
  tuned.kernel = gelu().id;
  tuned.device_model = DeviceModelOf(engine_->device(0).properties());
  tuned.problem = *MakeProblem(*gelu().op, {{DataType::kFloat32, {64}}}, {});
  for (const char* const name : {"simd_fused", "chain_of_loops"})
    tuned.right.push_back({RowNamed(name), 10, 10, 10, false});
  engine_->tuning().Take(tuned);
  const auto told = [&] {
    v1::ListKernelsResponse response;
    for (size_t i = 0; i < registry_.kernels().size(); ++i) response.add_kernels();
    AddTuned(deps, &response);
    const v1::KernelInfo& info = response.kernels(gelu().id);
    return info.tuned_size() == 1 ? "\"" + info.tuned(0).implementation() + "\"" : "no class";
  };
  EXPECT_EQ(told(), "\"manual\"");
  registry_.SetAvailability(RowNamed("chain_of_loops"),
                            {Unavailability::Cause::kSelfTest, "wrong"});
  EXPECT_EQ(told(), "\"\"");
}

// A device of the row's kind reports the reason, not a device that the row is not for.
TEST_F(AskedEngineTest, ABenchmarkOfARowThatRunsNowhereIsOnADeviceOfItsKind) {
  registry_.SetAvailability(RowNamed("simd_fused"), {Unavailability::Cause::kLibrary, "not here"});
  ExecuteDeps deps = DepsWith({DeviceKind::kCuda, DeviceKind::kCpu});
  EXPECT_EQ(DeviceOf({"simd_fused"}, "", &deps), 1);
  EXPECT_EQ(DeviceOf({"simd_fused"}, "cpu", &deps), 1);
  EXPECT_EQ(DeviceOf({"simd_fused"}, "cuda", &deps), 0);  // the named device
}

// Whatever the order of the names, and wherever else one of them runs.
TEST_F(AskedEngineTest, ABenchmarkIsOnTheMostPreferredDeviceThatRunsOneOfItsNames) {
  const Implementation on_gpu = {.name = "on_gpu",
                                 .family = Family::kCuda,
                                 .device_kind = DeviceKind::kCuda,
                                 .summary = "",
                                 .data_types = {DataType::kFloat32},
                                 .supports = SupportsAll,
                                 .plan = [](const Problem&, const PlanContext&) {
                                   return absl::StatusOr<PlanPtr>(PlanPtr());
                                 }};
  registry_.Add(*gelu().op, {on_gpu});
  ExecuteDeps deps = DepsWith({DeviceKind::kCuda, DeviceKind::kCpu});
  EXPECT_EQ(DeviceOf({"manual", "cuda"}, "", &deps), 0);
  EXPECT_EQ(DeviceOf({"cuda", "manual"}, "", &deps), 0);
  EXPECT_EQ(DeviceOf({"manual", "cuda"}, "cpu", &deps), 1);
  EXPECT_EQ(DeviceOf({"manual"}, "", &deps), 1);
}

// Its child does not know the tuning results.
TEST_F(AskedEngineTest, ABenchmarkTellsItsChildTheVariantsThatExecuteWouldRun) {
  const Row first = registry_.rows()[static_cast<size_t>(RowNamed("simd_fused"))];
  Implementation second = first.implementation;
  second.name = "second";
  registry_.Add(*gelu().op, {second});
  ExecuteDeps deps = DepsWith({DeviceKind::kCpu});
  deps.clock = MonotonicNs;
  const auto variants = [&](const std::vector<std::string>& names) {
    v1::BenchmarkRequest request;
    request.set_kernel("gelu");
    for (const std::string& name : names) request.add_implementations(name);
    v1::TensorSpec* const input = request.add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->add_shape(64);
    grpc::CallbackServerContext context;
    Request read(&deps, &context, ConnectionPrincipal("test"));
    std::string bytes = request.SerializeAsString();
    const auto operand_bytes = ReadBenchmark(deps, &bytes, &read);
    EXPECT_TRUE(operand_bytes.ok()) << operand_bytes.status();
    EXPECT_TRUE(request.ParseFromString(bytes));
    return std::vector<std::string>(request.implementations().begin(),
                                    request.implementations().end());
  };
  EXPECT_THAT(variants({"cpu"}), ElementsAre("cpu:simd_fused"));
  EXPECT_THAT(variants({"cpu:second", "cpu"}), ElementsAre("cpu:second", "cpu:simd_fused"));
  EXPECT_THAT(variants({"cpu:*", "second"}), ElementsAre("cpu:simd_fused", "cpu:second"));
  EXPECT_THAT(variants({}), Contains("cpu:simd_fused").Times(1));
  EXPECT_THAT(variants({}), Not(Contains("cpu:second")));
  TunedClass tuned;
  tuned.kernel = gelu().id;
  tuned.device_model = DeviceModelOf(engine_->device(0).properties());
  tuned.problem = *MakeProblem(*gelu().op, {{DataType::kFloat32, {64}}}, {});
  tuned.right.push_back({RowNamed("second"), 10, 10, 10, false});
  engine_->tuning().Take(tuned);
  EXPECT_THAT(variants({"cpu"}), ElementsAre("cpu:second"));
  EXPECT_THAT(variants({}), Contains("cpu:second").Times(1));
}

// A Profile of matmul, whose second input is a tensor that stays.
class FetchResidentsTest : public ::testing::Test {
 protected:
  FetchResidentsTest() {
    AddCpuKernels(&registry_);
    std::vector<std::unique_ptr<Device>> devices;
    devices.push_back(std::make_unique<CpuDevice>(1));
    device_ = devices.back().get();
    engine_ = *Engine::Create(registry_, std::move(devices), {});
    deps_.engine = engine_.get();
    deps_.registry = &registry_;
    deps_.clock = MonotonicNs;
    deps_.limits.message_bytes_max = 1000;
    plain_.set_iterations(7);
    plain_.set_seed(9);
    plain_.mutable_request()->set_kernel("matmul");
    plain_.mutable_request()->set_request_id("an id");
    AddInput({3, 2}, "a");
    AddInput({2, 4}, "b");
    handles_ = plain_;
    v1::Tensor& b = *handles_.mutable_request()->mutable_inputs(1);
    b.Clear();
    b.set_handle(Put({DataType::kFloat32, {2, 4}}, plain_.request().inputs(1).data()));
  }

  void AddInput(const std::vector<int64_t>& shape, const std::string& data) {
    v1::Tensor& input = *plain_.mutable_request()->add_inputs();
    input.set_data_type(v1::DATA_TYPE_FLOAT32);
    input.mutable_shape()->Assign(shape.begin(), shape.end());
    for (int64_t i = 0; i < 4 * shape[0] * shape[1]; ++i) input.mutable_data()->append(data);
  }
  std::string Put(const TensorSpec& spec, const std::string& data) {
    const ResidentContentPtr content = *engine_->residents().Reserve({""}, spec, 0);
    EXPECT_TRUE(
        content->Allocate([this](size_t bytes) { return device_->AllocateResident(bytes); }).ok());
    for (size_t i = 0; i < data.size(); ++i) content->data()[i] = data[i];
    return engine_->residents().Name(content, {})->handle;
  }
  void Free(const std::string& handle) {
    const absl::string_view view = handle;
    engine_->residents().Free("", absl::MakeConstSpan(&view, 1));
  }
  // The message for the child of a Profile; the tensors lose their names before it is made.
  absl::Status Fetch(bool cancelled = false) {
    std::string bytes = handles_.SerializeAsString();
    Request read(&deps_, &context_, ConnectionPrincipal("test"));
    absl::Status status = ReadProfile(deps_, bytes, &read).status();
    if (!status.ok()) return status;
    Free(handles_.request().inputs(1).handle());
    read.chosen().load = DeviceLoad();
    const std::atomic<bool> is_cancelled{cancelled};
    status = FetchResidents({&deps_, &context_, read, is_cancelled}, &bytes);
    if (status.ok()) EXPECT_TRUE(fetched_.ParseFromString(bytes));
    return status;
  }

  Registry registry_;
  Device* device_ = nullptr;
  std::unique_ptr<Engine> engine_;
  ExecuteDeps deps_{};
  grpc::CallbackServerContext context_;
  v1::ProfileRequest plain_;    // with all data
  v1::ProfileRequest handles_;  // with the handle
  v1::ProfileRequest fetched_;
};

// By the handle beside the bytes the child knows that the tensor is on the device before each run.
TEST_F(FetchResidentsTest, TheChildGetsTheBytesOfAFreedTensorBesideItsHandle) {
  const absl::Status status = Fetch();
  ASSERT_TRUE(status.ok()) << status;
  plain_.mutable_request()->mutable_inputs(1)->set_handle(handles_.request().inputs(1).handle());
  EXPECT_EQ(fetched_.SerializeAsString(), plain_.SerializeAsString());
}

TEST_F(FetchResidentsTest, ATensorWithoutBytesIsFetchedWithoutAJob) {
  plain_.mutable_request()->mutable_inputs(1)->set_shape(1, 0);
  plain_.mutable_request()->mutable_inputs(1)->clear_data();
  handles_.mutable_request()->mutable_inputs(1)->set_handle(Put({DataType::kFloat32, {2, 0}}, ""));
  const absl::Status status = Fetch(true);
  ASSERT_TRUE(status.ok()) << status;
  plain_.mutable_request()->mutable_inputs(1)->set_handle(handles_.request().inputs(1).handle());
  EXPECT_EQ(fetched_.SerializeAsString(), plain_.SerializeAsString());
}

TEST_F(FetchResidentsTest, RefusesWhatExecuteRefusesAndMoreThanAMessage) {
  EXPECT_TRUE(absl::IsCancelled(Fetch(true)));
  const absl::Status freed = Fetch();
  EXPECT_TRUE(absl::IsNotFound(freed)) << freed;
  EXPECT_EQ(LostHandles(freed), handles_.request().inputs(1).handle() + " freed");
  v1::Tensor& b = *handles_.mutable_request()->mutable_inputs(1);
  b.set_handle(Put({DataType::kFloat32, {2, 130}}, ""));
  const absl::Status large = Fetch();
  EXPECT_TRUE(absl::IsResourceExhausted(large)) << large;
  EXPECT_THAT(std::string(large.message()),
              HasSubstr("the inputs' data has 1064 bytes; the limit is 1000 (max_message_mib)"));
  b.set_data("abcd");
  EXPECT_TRUE(absl::IsInvalidArgument(Fetch()));
}

// A row of identity whose launches only take the device's time.
Implementation Steady(const char* name, int64_t ns) {
  return {.name = name,
          .family = Family::kCuda,
          .device_kind = DeviceKind::kCuda,
          .summary = "made up",
          .data_types = {DataType::kFloat32},
          .supports = SupportsAll,
          .plan = [ns](const Problem&, const PlanContext&) -> absl::StatusOr<PlanPtr> {
            return NewPlan({}, [ns](const Operands&, const LaunchContext& context) {
              static_cast<testing::TimedDevice*>(context.stream)->Pass(ns);
              return absl::OkStatus();
            });
          }};
}

v1::BenchmarkResponse Parsed(const std::string& bytes) {
  v1::BenchmarkResponse response;
  EXPECT_TRUE(response.ParseFromString(bytes));
  return response;
}

class AnswerBenchmarkTest : public ::testing::Test {
 protected:
  AnswerBenchmarkTest() {
    registry_.Add(IdentityOp(),
                  {Steady("slow", 3'000'000), Steady("broken", 1), Steady("fast", 30'000)});
    registry_.SetAvailability(1, {Unavailability::Cause::kSelfTest, "failed its self-test"});
    v1::BenchmarkRequest request;
    request.set_kernel("identity");
    request.set_iterations(3);
    v1::TensorSpec* const input = request.add_inputs();
    input->set_data_type(v1::DATA_TYPE_FLOAT32);
    input->add_shape(64);
    bytes_ = request.SerializeAsString();
  }

  v1::BenchmarkResponse Answer(std::function<void(const std::string&)> tell) {
    const auto answer =
        AnswerBenchmark(registry_, &device_, {.bytes = bytes_, .tell = std::move(tell)});
    EXPECT_TRUE(answer.ok()) << answer.status();
    return Parsed(answer.value_or(""));
  }
  // The verdict or the error of each result, by name.
  static std::map<std::string, std::string> Told(const v1::BenchmarkResponse& response) {
    std::map<std::string, std::string> told;
    for (const v1::BenchmarkResult& result : response.results())
      told[result.launch().variant()] = result.error().empty() ? result.verdict() : result.error();
    return told;
  }

  const std::map<std::string, std::string> verdicts_ = {{"fast", "fastest"},
                                                        {"slow", "slower by 9900 %"}};
  Registry registry_;
  testing::TimedDevice device_{DeviceKind::kCuda};
  std::string bytes_;
};

TEST_F(AnswerBenchmarkTest, OneAnswerHasAllResultsWithTheirVerdicts) {
  const v1::BenchmarkResponse answer = Answer(nullptr);
  std::map<std::string, std::string> told = verdicts_;
  told["broken"] = "failed its self-test";
  EXPECT_EQ(Told(answer), told);
  EXPECT_TRUE(answer.verdicts().empty());
}

TEST_F(AnswerBenchmarkTest, PartsHaveNoVerdictsAndTheLastHasThemAll) {
  std::map<std::string, std::string> told;
  const v1::BenchmarkResponse last =
      Answer([&](const std::string& part) { told.merge(Told(Parsed(part))); });
  EXPECT_EQ(told, (std::map<std::string, std::string>{
                      {"broken", "failed its self-test"}, {"fast", ""}, {"slow", ""}}));
  EXPECT_EQ(last.results_size(), 0);
  // Several are of one implementation.
  std::map<std::string, std::string> verdicts;
  for (const auto& [variant, verdict] : verdicts_) verdicts["cuda:" + variant] = verdict;
  EXPECT_EQ((std::map<std::string, std::string>(last.verdicts().begin(), last.verdicts().end())),
            verdicts);
}

}  // namespace
}  // namespace warpcall
