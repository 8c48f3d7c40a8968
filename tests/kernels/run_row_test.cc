// RunRow sees a faulty row's effect on memory: rows of identity, each with one fault.
#include "tests/kernels/run_row.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "tests/kernels/seed.h"

namespace warpcall::testing {
namespace {

constexpr size_t kWorkspaceBytes = 100;

Implementation RowWith(LaunchFunction launch) {
  return {.name = "faulty",
          .family = Family::kCpu,
          .device_kind = DeviceKind::kCpu,
          .summary = "",
          .data_types = {DataType::kBFloat16},
          .supports = SupportsAll,
          .plan = PlanBy(launch,
                         [](const Problem&, const DeviceProperties&) { return kWorkspaceBytes; })};
}

uint8_t* OutputOf(const Operands& operands) { return static_cast<uint8_t*>(operands.outputs[0]); }

absl::Status Copy(const Problem& problem, const Operands& operands, const LaunchContext&) {
  std::memcpy(operands.outputs[0], operands.inputs[0], problem.outputs[0].bytes());
  return absl::OkStatus();
}

// AddressSanitizer would end the program at the fault.
__attribute__((no_sanitize("address"))) void WriteFaultily(uint8_t* at) { *at = 1; }

std::string MessageOf(LaunchFunction launch) {
  const auto problem = MakeProblem(IdentityOp(), {{DataType::kBFloat16, {33}}}, {});
  EXPECT_TRUE(problem.ok()) << problem.status();
  std::vector<Memory> inputs;
  inputs.push_back(FilledInput(problem->inputs[0], Fill::kNormal, "run row"));
  return std::string(RunRow(RowWith(launch), *problem, inputs, 0xFF).status().message());
}

TEST(RunRowTest, ARowWithoutFaultsPasses) { EXPECT_EQ(MessageOf(Copy), ""); }

TEST(RunRowTest, SeesBytesBesideOperandsAndWorkspace) {
  const std::pair<LaunchFunction, const char*> kFaults[] = {
      {[](const Problem& p, const Operands& o, const LaunchContext& c) {
         WriteFaultily(OutputOf(o) + p.outputs[0].bytes());
         return Copy(p, o, c);
       },
       "wrote byte 0 of the 256 behind an output"},
      {[](const Problem& p, const Operands& o, const LaunchContext& c) {
         WriteFaultily(OutputOf(o) - 1);
         return Copy(p, o, c);
       },
       "wrote byte 255 of the 256 before an output"},
      {[](const Problem& p, const Operands& o, const LaunchContext& c) {
         WriteFaultily(static_cast<uint8_t*>(c.workspace) + kWorkspaceBytes + 255);
         return Copy(p, o, c);
       },
       "wrote byte 255 of the 256 behind the workspace"},
      {[](const Problem& p, const Operands& o, const LaunchContext& c) {
         auto* const x = static_cast<uint8_t*>(const_cast<void*>(o.inputs[0]));
         WriteFaultily(x + p.inputs[0].bytes() + 7);
         return Copy(p, o, c);
       },
       "wrote byte 7 of the 256 behind an input"}};
  for (const auto& [launch, message] : kFaults) EXPECT_EQ(MessageOf(launch), message);
}

TEST(RunRowTest, SeesAnInputThatIsOverwritten) {
  const std::string message =
      MessageOf([](const Problem& p, const Operands& o, const LaunchContext& c) {
        // Changed by both launches together, whatever it was.
        ++static_cast<uint8_t*>(const_cast<void*>(o.inputs[0]))[10];
        return Copy(p, o, c);
      });
  EXPECT_NE(message.find("an input: byte 10 "), std::string::npos) << message;
}

TEST(RunRowTest, SeesAnElementThatIsNotWrittenWhateverThePoison) {
  const std::string message =
      MessageOf([](const Problem& p, const Operands& o, const LaunchContext&) {
        std::memcpy(o.outputs[0], o.inputs[0],
                    p.outputs[0].bytes() - ElementBytes(p.outputs[0].data_type));
        return absl::OkStatus();
      });
  EXPECT_EQ(message, "an output, computed again by one thread: byte 64 of 66 is 0, was 255");
}

TEST(RunRowTest, SeesWorkspaceThatIsReadBeforeItIsWritten) {
  const std::string message =
      MessageOf([](const Problem& p, const Operands& o, const LaunchContext& c) {
        const absl::Status status = Copy(p, o, c);
        OutputOf(o)[5] = static_cast<const uint8_t*>(c.workspace)[99];
        return status;
      });
  EXPECT_EQ(message, "an output, computed again by one thread: byte 5 of 66 is 0, was 255");
}

TEST(RunRowTest, SeesAResultThatDependsOnTheNumberOfThreads) {
  const std::string message =
      MessageOf([](const Problem& p, const Operands& o, const LaunchContext& c) {
        const absl::Status status = Copy(p, o, c);
        OutputOf(o)[0] = static_cast<uint8_t>(static_cast<cpu::ThreadPool*>(c.stream)->threads());
        return status;
      });
  EXPECT_EQ(message, "an output, computed again by one thread: byte 0 of 66 is 1, was 4");
}

TEST(RunRowTest, SeesAResultThatGoesWhereTheFirstOneWent) {
  const std::string message =
      MessageOf([](const Problem& p, const Operands& o, const LaunchContext& c) {
        static Operands first;  // like a plan found again by the problem alone
        static int launches = 0;
        if (launches++ % 2 == 0) first = o;
        return Copy(p, first, c);
      });
  EXPECT_NE(message.find("computed again"), std::string::npos) << message;
}

TEST(MemoryTest, IsAlignedAsOperandsAreAndNoBetter) {
  for (const size_t bytes : {1, 255, 256, 4096, 100001}) {
    const Memory memory(bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % (2 * kOperandAlignmentBytes),
              kOperandAlignmentBytes);
  }
  EXPECT_EQ(Memory(0).data(), nullptr);
}

}  // namespace
}  // namespace warpcall::testing
