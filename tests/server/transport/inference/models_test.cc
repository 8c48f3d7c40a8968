#include "server/transport/inference/models.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/identity/identity.h"
#include "kernels/plan.h"
#include "server/transport/inference/signature.h"

namespace warpcall::oip {
namespace {

using ::testing::HasSubstr;

Implementation RowNamed(const char* name, Family family, std::vector<DataType> types) {
  return {.name = name,
          .family = family,
          .device_kind = DeviceKind::kCpu,
          .summary = "",
          .data_types = std::move(types),
          .supports = SupportsAll,
          .plan = PlanBy([](const Problem&, const Operands&, const LaunchContext&) {
            return absl::OkStatus();
          })};
}

Registry MadeUp() {
  Registry registry;
  const Implementation rows[] = {
      RowNamed("two_pass", Family::kCpu, {DataType::kFloat32, DataType::kBFloat16}),
      RowNamed("reference", Family::kReference, {DataType::kFloat32})};
  registry.Add(IdentityOp(), rows);
  return registry;
}

TEST(Models, AreKernelsWithTypesFamiliesAndRows) {
  const Registry registry = MadeUp();
  const Models models(registry);
  std::set<std::string> names;
  for (const Model& model : models.all()) names.insert(model.name);
  EXPECT_EQ(names, (std::set<std::string>{"identity", "identity_fp32", "identity_fp32__cpu",
                                          "identity_fp32__two_pass", "identity_fp32__reference",
                                          "identity_bf16", "identity_bf16__cpu",
                                          "identity_bf16__two_pass"}));
  EXPECT_EQ(models.all().size(), names.size());
  for (size_t i = 0; i < models.all().size(); ++i)
    EXPECT_EQ(*models.Find(models.all()[i].name, "1"), i);
  const Model& pinned = models.all()[*models.Find("identity_bf16__two_pass", "")];
  EXPECT_EQ(pinned.data_type, DataType::kBFloat16);
  EXPECT_EQ(pinned.implementation, "two_pass");
  EXPECT_FALSE(models.all()[*models.Find("identity", "")].data_type.has_value());
}

TEST(Models, SayWhatThereIsNot) {
  const Registry registry = MadeUp();
  const Models models(registry);
  for (const char* const name : {"", "gelu", "identity_fp16", "identity_fp32__", "identity__cpu"}) {
    const absl::Status status = models.Find(name, "1").status();
    EXPECT_TRUE(absl::IsNotFound(status)) << name;
    EXPECT_THAT(status.message(),
                HasSubstr(absl::StrCat("unknown model: '", name, "' is not found")));
  }
  EXPECT_THAT(models.Find("identity_bf16__cublas", "").status().message(),
              HasSubstr("Pinned are: identity_bf16__"));
  EXPECT_THAT(models.Find("identity_bf16__cublas", "").status().message(),
              HasSubstr("identity_bf16__two_pass"));
  EXPECT_THAT(models.Find("gelu_bf16__cublas", "").status().message(),
              HasSubstr("Kernels: identity"));
  EXPECT_TRUE(absl::IsNotFound(models.Find("identity", "2").status()));
  for (const char* const version : {"x", "-1", "1.0", " 1"})
    EXPECT_TRUE(absl::IsInvalidArgument(models.Find("identity", version).status())) << version;
}

TEST(Models, TypesHaveTheProtocolsNames) {
  for (const DataType type : kDataTypes) EXPECT_EQ(*ToDataType(WireTypeName(type)), type);
  EXPECT_THAT(ToDataType("INT8").status().message(), HasSubstr("taken by no kernel"));
  EXPECT_THAT(ToDataType("fp32").status().message(), HasSubstr("unknown"));
}

TEST(SignatureOf, FindsRanksByAskingTheOp) {
  Registry registry;
  AddCpuKernels(&registry);
  for (const Kernel& kernel : registry.kernels()) {
    const Signature signature = SignatureOf(*kernel.op);
    if (kernel.op->inputs_min != 0) continue;
    std::vector<TensorSpec> specs;
    for (const OperandInfo& input : signature.inputs) {
      EXPECT_FALSE(input.optional);
      specs.emplace_back().dims.assign(input.rank, 8);
    }
    EXPECT_TRUE(MakeProblem(*kernel.op, specs, {}).ok()) << kernel.op->name;
  }
}

}  // namespace
}  // namespace warpcall::oip
