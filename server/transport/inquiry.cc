#include "server/transport/inquiry.h"

#include "absl/strings/str_cat.h"
#include "proto/wire/tensor_split.h"
#include "server/engine/retry_pushback.h"

namespace warpcall {

absl::Status ParseSmall(const std::string& bytes, google::protobuf::Message* request) {
  const std::string& name = request->GetDescriptor()->name();
  // Whatever is repeated in it costs more to parse than to send.
  if (bytes.size() > wire::kHeaderBytesMax)
    return absl::InvalidArgumentError(absl::StrCat("the ", name, " has ", bytes.size(),
                                                   " bytes; the limit is ", wire::kHeaderBytesMax));
  if (request->ParseFromString(bytes)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the message is not a valid ", name, ": protobuf cannot parse it"));
}

absl::Status CheckOperandBytes(const ExecuteDeps& deps, absl::string_view doing, int64_t bytes,
                               const Device& device) {
  const int64_t half = device.properties().memory_bytes / 2;
  const bool over_flag = bytes > deps.benchmark_bytes_max;
  if (!over_flag && bytes <= half) return absl::OkStatus();
  const std::string limit =
      over_flag ? absl::StrCat(deps.benchmark_bytes_max, " (benchmark_mib)")
                : absl::StrCat(half, ", half of ", device.properties().name, "'s memory");
  return WithRetryPushback(
      absl::ResourceExhaustedError(
          absl::StrCat(doing, " these shapes takes ", bytes, " bytes; the limit is ", limit)),
      kNeverRetry);
}

}  // namespace warpcall
