#include "kernels/check/compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/str_cat.h"
#include "proto/common/check.h"
#include "proto/common/dispatch.h"

namespace warpcall {
namespace {

constexpr int kShownMax = 5;

struct Format {
  double unit_roundoff;    // half the distance between 1 and its next neighbour
  double smallest_normal;  // below it neighbours stay as far apart as they are there
  double greatest_power;   // largest power of two of the format

  // From here on values round to infinity: half a unit beyond the largest number.
  double overflow() const { return greatest_power * (2 - unit_roundoff); }
};

Format FormatOf(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return {0x1p-11, 0x1p-14, 0x1p15};
    case DataType::kBFloat16:
      return {0x1p-8, 0x1p-126, 0x1p127};
    case DataType::kFloat32:
      return {0x1p-24, 0x1p-126, 0x1p127};
  }
  AbortOnDataType(type);
}

double HalfUnitOf(const Format& format, double value) {
  constexpr uint64_t kExponent = 0x7FF0000000000000u;
  const double power = std::bit_cast<double>(std::bit_cast<uint64_t>(value) & kExponent);
  return std::max(power, format.smallest_normal) * format.unit_roundoff;
}

// Largest change of a result by one more rounding on the way: relative to a number that need not
// lie between the same powers of two, and absolute among subnormals.
double RoundingOf(const Format& format, double truth) {
  return std::max(format.unit_roundoff * std::fabs(truth), HalfUnitOf(format, truth));
}

class Judge {
 public:
  Judge(DataType type, const Allowance& allowance)
      : format_(FormatOf(type)), overflow_(format_.overflow()), allowance_(allowance) {}

  // Upper bound of the error of the arithmetic before the result is rounded.
  double Arithmetic(double truth, const ElementError& error) const {
    double bound = error.arithmetic * allowance_.arithmetic +
                   (allowance_.roundings - 1) * RoundingOf(format_, truth);
    if (allowance_.flushes_subnormal_inputs) bound += error.subnormal_inputs;
    return bound;
  }

  double Bound(double truth, double arithmetic) const {
    return arithmetic + HalfUnitOf(format_, std::fabs(truth) + arithmetic);
  }

  // Judges special values of either number; kByBound leaves finite ones to the bound.
  enum class Verdict : uint8_t { kRight, kWrong, kByBound };
  Verdict Special(double actual, double truth, double arithmetic) const {
    const auto verdict = [](bool right) { return right ? Verdict::kRight : Verdict::kWrong; };
    if (std::isnan(truth)) return verdict(std::isnan(actual));
    if (std::isinf(truth)) return verdict(actual == truth);
    if (std::isnan(actual)) return Verdict::kWrong;
    if (std::isinf(actual)) {
      return verdict(actual > 0 ? truth + arithmetic >= overflow_
                                : truth - arithmetic <= -overflow_);
    }
    if (truth == 0 && arithmetic == 0)
      return verdict(actual == 0 && std::signbit(actual) == std::signbit(truth));
    if (actual == 0 && std::fabs(truth) < allowance_.zero_below) return Verdict::kRight;
    return Verdict::kByBound;
  }

 private:
  const Format format_;
  const double overflow_;
  const Allowance& allowance_;
};

}  // namespace

Allowance AllowanceFor(const OpCases& cases, absl::string_view row, DataType data_type) {
  for (const Allowance& allowance : cases.allowances) {
    const std::vector<DataType>& types = allowance.data_types;
    const bool of_type =
        types.empty() || std::find(types.begin(), types.end(), data_type) != types.end();
    if (of_type && row == allowance.row) return allowance;
  }
  return {};
}

double HalfUnit(DataType type, double value) { return HalfUnitOf(FormatOf(type), value); }

double OfBound(double actual, double truth, const ElementError& error, const Tolerance& tolerance) {
  if (std::isinf(error.arithmetic)) return 0;
  const Judge judge(tolerance.data_type, tolerance.allowance);
  const double arithmetic = judge.Arithmetic(truth, error);
  switch (judge.Special(actual, truth, arithmetic)) {
    case Judge::Verdict::kRight:
      return 0;
    case Judge::Verdict::kWrong:
      return std::numeric_limits<double>::infinity();
    case Judge::Verdict::kByBound:
      break;
  }
  return std::fabs(actual - truth) / judge.Bound(truth, arithmetic);
}

Disagreement Compare(const Truth& truth, const void* actual, const Allowance& allowance) {
  WARPCALL_DCHECK(truth.errors.size() == truth.values.size(), truth.errors.size(),
                  truth.values.size());
  Disagreement result;
  const Judge judge(truth.spec.data_type, allowance);
  const auto tell = [&](size_t i, double a, double arithmetic) {
    if (++result.wrong > kShownMax) return;
    const double t = truth.values[i];
    absl::StrAppend(&result.text, "element ", i, " of ", ToString(truth.spec), " is ", a,
                    ", the truth ", t, "; off by ", std::fabs(a - t), ", allowed are ",
                    judge.Bound(t, arithmetic), ", ", arithmetic, " of it arithmetic\n");
  };
  DispatchDataType(truth.spec.data_type, [&]<typename T>(T) {
    for (size_t i = 0; i < truth.values.size(); ++i) {
      const double a = ToFloat(static_cast<const T*>(actual)[i]);
      const double t = truth.values[i];
      if (std::isinf(truth.errors[i].arithmetic)) continue;
      const double arithmetic = judge.Arithmetic(t, truth.errors[i]);
      const Judge::Verdict verdict = judge.Special(a, t, arithmetic);
      if (verdict == Judge::Verdict::kRight) continue;
      if (verdict == Judge::Verdict::kByBound) {
        const double of_bound = std::fabs(a - t) / judge.Bound(t, arithmetic);
        result.worst = std::max(result.worst, of_bound);
        if (of_bound <= 1) continue;
      }
      tell(i, a, arithmetic);
    }
  });
  return result;
}

}  // namespace warpcall
