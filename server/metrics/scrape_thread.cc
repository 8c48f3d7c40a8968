#include "server/metrics/scrape_thread.h"

#include <sys/resource.h>
#include <zlib.h>

#include <utility>

#include "proto/common/check.h"

namespace warpcall {
namespace {

constexpr int kScrapeNice = 5;
// zlib's: 15 bits of window, and 16 more for gzip's header and trailer.
constexpr int kGzipWindowBits = 15 + 16;
constexpr int kMemoryLevel = 8;

}  // namespace

std::string Gzip(absl::string_view text) {
  z_stream stream = {};
  std::string out;
  if (deflateInit2(&stream, Z_BEST_SPEED, Z_DEFLATED, kGzipWindowBits, kMemoryLevel,
                   Z_DEFAULT_STRATEGY) != Z_OK)
    return out;
  out.resize(deflateBound(&stream, text.size()));
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);  // all of it: there is room by deflateBound
  out.resize(stream.total_out);
  deflateEnd(&stream);
  out.shrink_to_fit();
  return out;
}

void GiveWayToRequests() {
  // Never raises the priority, which root could. Where lowering is refused it stays as it is.
  if (getpriority(PRIO_PROCESS, 0) < kScrapeNice) setpriority(PRIO_PROCESS, 0, kScrapeNice);
}

ScrapeThread::ScrapeThread(std::function<std::string(Document)> render, std::function<void()> done)
    : render_(std::move(render)), done_(std::move(done)), thread_([this] { Run(); }) {
  WARPCALL_DCHECK(render_ != nullptr && done_ != nullptr);
}

ScrapeThread::~ScrapeThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    work_.Signal();
  }
  thread_.join();
}

uint64_t ScrapeThread::Request(const ScrapeKind& kind) {
  absl::MutexLock lock(&mutex_);
  Renderings& renderings = Of(kind);
  renderings.asked = renderings.begun + 1;
  work_.Signal();
  return renderings.asked;
}

ScrapeThread::Text ScrapeThread::Take(const ScrapeKind& kind) {
  absl::MutexLock lock(&mutex_);
  Text& newest = Of(kind).newest;
  return {newest.number, std::move(newest.text)};
}

bool ScrapeThread::HasWork() const {
  for (const Renderings& renderings : renderings_)
    if (renderings.asked > renderings.begun) return true;
  return stopping_;
}

void ScrapeThread::Run() {
  GiveWayToRequests();
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      while (!HasWork()) work_.Wait(&mutex_);
      if (stopping_) return;
    }
    for (const ScrapeKind& kind : kKinds) Render(kind);
  }
}

void ScrapeThread::Render(const ScrapeKind& kind) {
  uint64_t number = 0;
  {
    absl::MutexLock lock(&mutex_);
    Renderings& renderings = Of(kind);
    WARPCALL_DCHECK(renderings.asked >= renderings.begun, renderings.asked, renderings.begun);
    if (renderings.asked == renderings.begun) return;
    number = ++renderings.begun;
  }
  std::string rendered = render_(kind.document);
  if (kind.gzip) rendered = Gzip(rendered);
  auto text = std::make_shared<const std::string>(std::move(rendered));
  {
    absl::MutexLock lock(&mutex_);
    Of(kind).newest = {number, std::move(text)};
  }
  done_();
}

}  // namespace warpcall
