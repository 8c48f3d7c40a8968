#include "client/cli/bench/measure.h"

#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/common/catalog.h"
#include "client/cli/common/interrupt.h"
#include "client/cli/common/output.h"
#include "client/cli/common/progress.h"
#include "client/cli/common/table.h"

namespace warpcall::cli {
namespace {

constexpr char kInterrupted[] = "interrupted";
constexpr char kGone[] = "the server is gone";
// A server that does not say within this time that it serves is gone.
constexpr absl::Duration kHealthTimeout = absl::Seconds(5);

std::string News(const client::BenchmarkResult& result) {
  if (result.predicted_ns() > 0) return absl::StrCat(VariantName(result), " skipped");
  if (!result.error().empty()) return absl::StrCat(VariantName(result), " did not run");
  const std::string noise =
      result.median_high_ns() > 0 ? absl::StrFormat(", noise %.1f%%", result.noise() * 100) : "";
  return absl::StrCat(VariantName(result), " ", HumanTime(result.median_ns()), noise);
}

void MeasurePoint(client::Client* client, const std::string& title,
                  client::Cancellation* cancellation, BenchPoint* point) {
  Progress progress(title);
  int told = 0;
  const auto tell = [&](const client::BenchmarkReport& so_far) {
    for (; told < so_far.results_size(); ++told) progress.Tell(News(so_far.results(told)));
    return absl::OkStatus();
  };
  point->asked = true;
  point->status = client->BenchmarkStream(
      point->call, {.progress = tell, .cancellation = cancellation}, &point->report);
}

// Rows are told when all are measured.
void TunePoint(client::Client* client, const std::string& title, client::Cancellation* cancellation,
               BenchPoint* point) {
  const Progress progress(title);
  point->asked = true;
  absl::StatusOr<client::BenchmarkReport> report = client->Tune(point->call, cancellation);
  point->status = report.status();
  if (!report.ok()) return;
  point->report = *std::move(report);
  const auto served = client->Describe({.kernel = point->call.kernel,
                                        .inputs = point->call.inputs,
                                        .attributes = point->call.attributes,
                                        .device = point->report.device(),
                                        .timeout = point->call.timeout});
  // The table says what was measured, whether or not this can be said.
  if (!served.ok()) return;
  point->served = VariantName(served->implementation(), served->launch().variant());
  point->served_because = served->chosen_because();
}

// The call under way ended because the command did.
void MarkInterrupted(BenchPoint* point) {
  if (point->status.ok()) return;
  point->asked = !point->report.results().empty();
  point->status =
      absl::CancelledError(absl::StrCat(point->asked ? "" : "not measured: ", kInterrupted));
}

// Of a point that ended with UNAVAILABLE: whether all that come would, or those of its device.
bool IsGone(client::Client* client) {
  const auto health = client->Health("", kHealthTimeout);
  return !health.ok() || *health != client::ServingStatus::kServing;
}

}  // namespace

void AskServer(client::Client* client, absl::Duration timeout, BenchServer* server) {
  if (const auto devices = client->ListDevices(timeout); devices.ok())
    for (const client::DeviceInfo& device : *devices)
      server->device_kinds[device.name] = device.kind;
  if (const auto info = client->ServerInfo(timeout); info.ok()) {
    server->host = info->hostname;
    server->version = info->version;
  }
}

int MeasurePoints(client::Client* client, BenchReport* report,
                  const std::function<void(const BenchPoint&)>& show) {
  client::Cancellation cancellation;
  const Interrupt interrupt([&](int) {
    PrintNote(
        absl::StrCat(report->tunes ? "tune" : "bench", ": interrupted; what was measured is kept"));
    cancellation.Cancel();
  });
  const char* end = nullptr;   // why nothing is measured any more
  std::set<std::string> lost;  // devices on which nothing is
  for (size_t i = 0; i < report->points.size(); ++i) {
    BenchPoint& point = report->points[i];
    if (interrupt.signal() != 0) end = kInterrupted;
    if (end != nullptr) {
      point.status = absl::CancelledError(absl::StrCat("not measured: ", end));
    } else if (lost.count(point.call.device) > 0) {
      point.status = absl::CancelledError(
          absl::StrCat("not measured: ", point.call.device, " is unavailable"));
    } else {
      const auto measure = report->tunes ? TunePoint : MeasurePoint;
      measure(client,
              absl::StrCat(report->kernel, " ", ProblemTitle(point), ", point ", i + 1, " of ",
                           report->points.size()),
              &cancellation, &point);
      if (absl::IsUnavailable(point.status) && IsGone(client)) end = kGone;
      // Which device an unnamed one was nobody knows; the server may choose another.
      if (absl::IsUnavailable(point.status) && !point.call.device.empty())
        lost.insert(point.call.device);
      if (interrupt.signal() != 0) MarkInterrupted(&point);
    }
    show(point);
  }
  return interrupt.signal();
}

}  // namespace warpcall::cli
