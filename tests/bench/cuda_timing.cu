#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "kernels/cuda/cuda_status.h"
#include "kernels/cuda/reads.h"
#include "kernels/cuda/vector.cuh"
#include "proto/common/dispatch.h"
#include "proto/common/status_macros.h"
#include "tests/bench/cuda_timing.h"
#include "tests/kernels/device_array.h"

namespace warpcall::bench {
namespace {

using cuda::ToStatus;
using testing::DeviceArray;

// One sample: a graph of launches of at least this long, so that an event's resolution of half a
// microsecond and the gaps at both ends do not count.
constexpr double kSampleSeconds = 1e-3;
constexpr int kLaunchesMax = 400;
constexpr int kLaunchesMin = 2;
constexpr double kSecondsMax = 0.25;  // per candidate
// A steady sample, between which the device rests while the host works.
constexpr double kSteadySampleSeconds = 50e-3;

__device__ uint32_t Mix(uint64_t x) {  // splitmix64 (G. Steele, D. Lea, C. Flood, 2014)
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return static_cast<uint32_t>((x ^ (x >> 31)) >> 32);
}

template <typename T>
__global__ void Fill(T* out, int64_t n, uint64_t seed) {
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < n;
       i += int64_t{gridDim.x} * blockDim.x) {
    const float u = (static_cast<float>(Mix(seed + 2 * i)) + 0.5f) * 0x1p-32f;
    const float v = static_cast<float>(Mix(seed + 2 * i + 1)) * 0x1p-32f;
    const float normal = sqrtf(-2 * __logf(fminf(u, 0.9999999f))) * __cosf(6.2831853f * v);
    out[i] = cuda::Narrow<T>(normal);
  }
}

// So many launches of a candidate, as a graph or one by one.
class Launches {
 public:
  ~Launches() {
    if (executable_ != nullptr) cudaGraphExecDestroy(executable_);
  }
  absl::Status Capture(const Candidate& candidate, int launches, cudaStream_t stream) {
    candidate_ = &candidate;
    launches_ = launches;
    if (!candidate.in_graph) return absl::OkStatus();
    RETURN_IF_ERROR(ToStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                             "beginning a capture"));
    absl::Status status;
    for (int i = 0; i < launches; ++i) status.Update(candidate.enqueue(i, stream));
    cudaGraph_t graph = nullptr;
    status.Update(ToStatus(cudaStreamEndCapture(stream, &graph), "ending a capture"));
    if (status.ok())
      status = ToStatus(cudaGraphInstantiate(&executable_, graph, 0), "instantiating a graph");
    if (graph != nullptr) cudaGraphDestroy(graph);
    return status;
  }
  absl::Status Run(cudaStream_t stream) const {
    if (executable_ != nullptr)
      return ToStatus(cudaGraphLaunch(executable_, stream), "launching a graph");
    absl::Status status;
    for (int i = 0; i < launches_; ++i) status.Update(candidate_->enqueue(i, stream));
    return status;
  }
  int launches() const { return launches_; }

 private:
  const Candidate* candidate_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  int launches_ = 0;
};

struct Events {
  Events() {
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
  }
  ~Events() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
};

template <typename Body>
absl::StatusOr<double> Seconds(const Events& events, cudaStream_t stream, Body&& body) {
  RETURN_IF_ERROR(ToStatus(cudaEventRecord(events.begin, stream), "recording"));
  RETURN_IF_ERROR(body());
  RETURN_IF_ERROR(ToStatus(cudaEventRecord(events.end, stream), "recording"));
  RETURN_IF_ERROR(ToStatus(cudaEventSynchronize(events.end), "waiting"));
  float ms = 0;
  RETURN_IF_ERROR(ToStatus(cudaEventElapsedTime(&ms, events.begin, events.end), "reading a time"));
  return static_cast<double>(ms) * 1e-3;
}

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

// Returns the number of launches in a sample; the candidate is warm afterwards.
absl::StatusOr<int> LaunchesFor(const Candidate& candidate, cudaStream_t stream,
                                const Events& events, double sample_seconds) {
  constexpr int kTrial = 4;
  double seconds = 0;
  for (int round = 0; round < 2; ++round) {
    ASSIGN_OR_RETURN(seconds, Seconds(events, stream, [&] {
                       absl::Status status;
                       for (int i = 0; i < kTrial; ++i) status.Update(candidate.enqueue(i, stream));
                       return status;
                     }));
  }
  const double wanted = sample_seconds / (seconds / kTrial);
  return std::clamp(static_cast<int>(wanted) + 1, kLaunchesMin, kLaunchesMax);
}

}  // namespace

absl::Status FillNormal(const TensorSpec& spec, uint64_t seed, void* device_memory) {
  DispatchDataType(spec.data_type, [&]<typename T>(T) {
    Fill<<<4096, 256>>>(static_cast<T*>(device_memory), spec.elements(), seed << 36);
  });
  RETURN_IF_ERROR(ToStatus(cudaGetLastError(), "filling with random data"));
  return ToStatus(cudaDeviceSynchronize(), "filling with random data");
}

void Time(std::vector<Candidate>& candidates, cudaStream_t stream,
          const std::function<bool()>& runs_slowly, int samples_max) {
  const Events events;
  std::vector<Launches> graphs(candidates.size());
  std::vector<std::vector<double>> samples(candidates.size());
  for (size_t c = 0; c < candidates.size(); ++c) {
    const absl::StatusOr<int> launches = LaunchesFor(candidates[c], stream, events, kSampleSeconds);
    candidates[c].status =
        launches.ok() ? graphs[c].Capture(candidates[c], *launches, stream) : launches.status();
  }
  std::vector<double> spent(candidates.size());
  // Shuffle every round: the data that a candidate leaves in the L2 must be written back in the
  // next one's time, which costs up to 3 % of half a millisecond.
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937 random(1);
  for (int sample = 0; sample < samples_max; ++sample) {
    std::shuffle(order.begin(), order.end(), random);
    for (const size_t c : order) {
      if (!candidates[c].status.ok() || (spent[c] > kSecondsMax && sample > 4)) continue;
      const absl::StatusOr<double> seconds =
          Seconds(events, stream, [&] { return graphs[c].Run(stream); });
      candidates[c].status = seconds.status();
      if (!seconds.ok()) continue;
      spent[c] += *seconds;
      // Or else rows that come after hungry ones would find the clock lower.
      absl::SleepFor(absl::Seconds(*seconds));
      if (sample == 0) continue;  // uploads
      if (runs_slowly != nullptr && runs_slowly())
        ++candidates[c].dropped;
      else
        samples[c].push_back(*seconds / graphs[c].launches());
    }
  }
  for (size_t c = 0; c < candidates.size(); ++c) {
    if (samples[c].empty()) {
      if (candidates[c].status.ok())
        candidates[c].status = absl::ResourceExhaustedError(
            absl::StrCat("all ", candidates[c].dropped, " samples were taken at a low clock"));
      continue;
    }
    std::sort(samples[c].begin(), samples[c].end());
    candidates[c].seconds = Quantile(samples[c], 0.5);
    candidates[c].seconds_p10 = Quantile(samples[c], 0.1);
    candidates[c].seconds_p90 = Quantile(samples[c], 0.9);
  }
}

absl::Status RunSteadily(const Candidate& candidate, cudaStream_t stream,
                         const std::function<bool(double seconds, int64_t launches)>& goes_on) {
  const Events events;
  Launches graph;
  ASSIGN_OR_RETURN(const int launches,
                   LaunchesFor(candidate, stream, events, kSteadySampleSeconds));
  RETURN_IF_ERROR(graph.Capture(candidate, launches, stream));
  int repeats = 1;
  const auto run = [&] {
    absl::Status status;
    for (int i = 0; i < repeats; ++i) status.Update(graph.Run(stream));
    return status;
  };
  double seconds = 0;
  for (int i = 0; i < 2; ++i) {  // the first one uploads
    ASSIGN_OR_RETURN(seconds, Seconds(events, stream, run));
  }
  repeats = std::max(1, static_cast<int>(std::lround(kSteadySampleSeconds / seconds)));
  const int64_t count = int64_t{repeats} * launches;
  do {
    ASSIGN_OR_RETURN(seconds, Seconds(events, stream, run));
  } while (goes_on(seconds / static_cast<double>(count), count));
  return absl::OkStatus();
}

absl::StatusOr<Ceilings> MeasureCeilings(const DeviceProperties& device) {
  constexpr size_t kDeviceBytes = size_t{4} << 30;
  constexpr size_t kHostBytes = size_t{256} << 20;
  constexpr int kRepeats = 5;
  DeviceArray from;
  DeviceArray to;
  ASSIGN_OR_RETURN(from, DeviceArray::Create(kDeviceBytes));
  ASSIGN_OR_RETURN(to, DeviceArray::Create(kDeviceBytes));
  RETURN_IF_ERROR(FillNormal({DataType::kFloat32, {kDeviceBytes / 4}}, 1, from.data()));
  char* host = nullptr;
  RETURN_IF_ERROR(ToStatus(cudaMallocHost(&host, 2 * kHostBytes), "pinning host memory"));
  cudaStream_t streams[2];
  for (cudaStream_t& stream : streams)
    RETURN_IF_ERROR(ToStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream"));
  const Events events;
  const Events other;
  const auto h2d = [&](cudaStream_t stream) {
    return ToStatus(cudaMemcpyAsync(from.data(), host, kHostBytes, cudaMemcpyHostToDevice, stream),
                    "copying");
  };
  const auto d2h = [&](cudaStream_t stream) {
    return ToStatus(
        cudaMemcpyAsync(host + kHostBytes, to.data(), kHostBytes, cudaMemcpyDeviceToHost, stream),
        "copying");
  };
  const auto copy = [&] {
    return ToStatus(
        cudaMemcpyAsync(to.data(), from.data(), kDeviceBytes, cudaMemcpyDeviceToDevice, streams[0]),
        "copying");
  };
  ASSIGN_OR_RETURN(const PlanPtr reads, cuda::ReadsOn(kDeviceBytes, device));
  const Operands read = {.inputs = {from.data()}, .outputs = {}};
  const auto read_all = [&] { return reads->Enqueue(read, {.stream = streams[0]}); };
  const auto both = [&]() -> absl::Status {
    RETURN_IF_ERROR(ToStatus(cudaStreamWaitEvent(streams[1], events.begin, 0), "ordering"));
    RETURN_IF_ERROR(h2d(streams[0]));
    RETURN_IF_ERROR(d2h(streams[1]));
    RETURN_IF_ERROR(ToStatus(cudaEventRecord(other.end, streams[1]), "recording"));
    return ToStatus(cudaStreamWaitEvent(streams[0], other.end, 0), "ordering");
  };
  Ceilings best;
  for (int i = 0; i < kRepeats; ++i) {
    const auto keep = [&](double* rate, double bytes, absl::StatusOr<double> seconds) {
      if (seconds.ok()) *rate = std::max(*rate, bytes / *seconds);
      return seconds.status();
    };
    RETURN_IF_ERROR(
        keep(&best.copy_bytes_per_second, 2.0 * kDeviceBytes, Seconds(events, streams[0], copy)));
    RETURN_IF_ERROR(
        keep(&best.read_bytes_per_second, kDeviceBytes, Seconds(events, streams[0], read_all)));
    RETURN_IF_ERROR(keep(&best.h2d_bytes_per_second, kHostBytes,
                         Seconds(events, streams[0], [&] { return h2d(streams[0]); })));
    RETURN_IF_ERROR(keep(&best.d2h_bytes_per_second, kHostBytes,
                         Seconds(events, streams[0], [&] { return d2h(streams[0]); })));
    RETURN_IF_ERROR(keep(&best.both_ways_bytes_per_second, 2.0 * kHostBytes,
                         Seconds(events, streams[0], both)));
  }
  for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  cudaFreeHost(host);
  return best;
}

}  // namespace warpcall::bench
