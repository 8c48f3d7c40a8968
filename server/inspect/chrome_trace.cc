#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "server/inspect/profile_rows.h"

namespace warpcall::inspect {
namespace {

constexpr int kHost = 1;
constexpr int kDevice = 2;
// The host's threads come after the track of whole runs.
constexpr int kRuns = 0;
constexpr int kFirstThread = 1;

std::string Quoted(absl::string_view text) {
  return nlohmann::json(std::string(text))
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct Track {
  int process;
  int64_t thread;
};

struct Range {
  absl::string_view name;
  int64_t start_ns;
  int64_t end_ns;
};

class Writer {
 public:
  explicit Writer(int64_t origin_ns) : origin_ns_(origin_ns) {}

  // `arguments`: the inside of a JSON object.
  void Add(const Track& track, const Range& range, absl::string_view arguments) {
    Open();
    absl::StrAppendFormat(
        &text_, R"({"ph":"X","pid":%d,"tid":%d,"name":%s,"ts":%.3f,"dur":%.3f,"args":{%s}})",
        track.process, track.thread, Quoted(range.name),
        static_cast<double>(range.start_ns - origin_ns_) / 1e3,
        static_cast<double>(range.end_ns - range.start_ns) / 1e3, arguments);
  }
  // `what`: process_name or thread_name.
  void Name(const char* what, const Track& track, absl::string_view name) {
    Open();
    absl::StrAppendFormat(&text_, R"({"ph":"M","pid":%d,"tid":%d,"name":"%s","args":{"name":%s}})",
                          track.process, track.thread, what, Quoted(name));
  }
  std::string Finish(absl::string_view other_data) {
    return absl::StrFormat(
        "{\"displayTimeUnit\":\"ns\",\"otherData\":{%s},\"traceEvents\":[\n%s\n]}\n", other_data,
        text_);
  }

 private:
  void Open() {
    if (!text_.empty()) text_ += ",\n";
  }

  const int64_t origin_ns_;
  std::string text_;
};

void AddHost(const Watched& watched, const TraceLabels& labels, Writer* writer) {
  writer->Name("process_name", {kHost, kRuns}, "host");
  writer->Name("thread_name", {kHost, kRuns}, "runs");
  for (const ProfiledRun& run : watched.runs) {
    const std::string arguments =
        absl::StrFormat(R"("request_id":%s,"run":%d)", Quoted(labels.request_id), run.request);
    const bool queued = run.queue_ns >= 0;
    writer->Add({kHost, kRuns},
                {(queued ? "request " : "run ") + labels.kernel, run.submitted_ns, run.done_ns},
                arguments);
    if (queued)
      writer->Add({kHost, kRuns}, {"queue", run.submitted_ns, run.submitted_ns + run.queue_ns},
                  arguments);
  }
  int threads = 0;
  for (const RecordedPhase& phase : watched.phases) {
    threads = std::max(threads, phase.thread + 1);
    writer->Add({kHost, kFirstThread + phase.thread}, {phase.name, phase.start_ns, phase.end_ns},
                absl::StrFormat(R"("run":%d)", phase.request));
  }
  for (int thread = 0; thread < threads; ++thread)
    writer->Name("thread_name", {kHost, kFirstThread + thread}, absl::StrFormat("lane %d", thread));
}

std::string ArgumentsOf(const DeviceActivity& activity) {
  if (activity.kind != DeviceActivity::Kind::kKernel)
    return absl::StrFormat(
        R"("bytes":%d,"GB/s":%.1f)", activity.bytes,
        static_cast<double>(activity.bytes) /
            static_cast<double>(std::max<int64_t>(activity.end_ns - activity.start_ns, 1)));
  if (activity.grid[0] == 0) return "";
  return absl::StrFormat(
      R"("grid":"%dx%dx%d","block":"%dx%dx%d","registers per thread":%d,"shared memory":%d)",
      activity.grid[0], activity.grid[1], activity.grid[2], activity.block[0], activity.block[1],
      activity.block[2], activity.registers_per_thread, activity.shared_memory_bytes);
}

void AddDevice(const Watched& watched, const TraceLabels& labels, Writer* writer) {
  writer->Name("process_name", {kDevice, 0}, labels.device);
  std::vector<int64_t> streams;
  for (const DeviceActivity& activity : watched.activities) {
    if (std::find(streams.begin(), streams.end(), activity.stream) == streams.end())
      streams.push_back(activity.stream);
    const std::string name =
        activity.step.empty() ? activity.name : absl::StrCat(activity.step, ": ", activity.name);
    writer->Add({kDevice, activity.stream}, {name, activity.start_ns, activity.end_ns},
                ArgumentsOf(activity));
  }
  for (const int64_t stream : streams)
    writer->Name("thread_name", {kDevice, stream}, absl::StrFormat("stream %d", stream));
}

}  // namespace

std::string ChromeTrace(const Watched& watched, const TraceLabels& labels) {
  Writer writer(watched.runs.empty() ? 0 : watched.runs.front().submitted_ns);
  AddHost(watched, labels, &writer);
  AddDevice(watched, labels, &writer);
  return writer.Finish(absl::StrFormat(
      R"("kernel":%s,"implementation":%s,"device":%s,"request_id":%s,"traceparent":%s)",
      Quoted(labels.kernel), Quoted(labels.implementation), Quoted(labels.device),
      Quoted(labels.request_id), Quoted(labels.traceparent)));
}

}  // namespace warpcall::inspect
