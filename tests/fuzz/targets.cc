#include "tests/fuzz/targets.h"

namespace warpcall::testing {

absl::Span<const FuzzTarget> FuzzTargets() {
  static constexpr FuzzTarget kTargets[] = {
      {"access_file_fuzz", FuzzAccessFile},
      {"client_response_fuzz", FuzzClientResponse},
      {"compiler_fuzz", FuzzCompiler},
      {"cubin_file_fuzz", FuzzCubinFile},
      {"expression_fuzz", FuzzExpression},
      {"graph_fuzz", FuzzGraph},
      {"http_fuzz", FuzzHttp},
      {"infer_request_fuzz", FuzzInferRequest},
      {"inspect_child_fuzz", FuzzInspectChild},
      {"manifest_fuzz", FuzzManifest},
      {"npy_fuzz", FuzzNpy},
      {"put_fuzz", FuzzPut},
      {"request_fuzz", FuzzRequest},
      {"self_test_fuzz", FuzzSelfTest},
      {"stream_fuzz", FuzzStream},
      {"traceparent_fuzz", FuzzTraceparent},
      {"tuning_fuzz", FuzzTuning},
      {"worker_fuzz", FuzzWorker},
  };
  return kTargets;
}

}  // namespace warpcall::testing
