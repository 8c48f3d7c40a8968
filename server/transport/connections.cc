#include "server/transport/connections.h"

#include <sys/stat.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace warpcall {
namespace {

// Idle connections hold up to 64 KiB each, 512 MiB in all.
constexpr int64_t kConnectionsMax = 8192;
// For the metrics port (128), inspections, self-tests, compilers, files that are read again.
constexpr int64_t kDescriptorsKept = 256;

uint64_t SocketInode(int descriptor) {
  struct stat found;
  if (fstat(descriptor, &found) != 0 || !S_ISSOCK(found.st_mode)) return 0;
  return found.st_ino;
}

}  // namespace

ConnectionLimits ConnectionLimitsFor(const ConnectionMeans& means) {
  const int64_t left = std::max<int64_t>(means.descriptors_max - means.descriptors_open, 0);
  // Where there are few, half of them.
  const int64_t kept = std::min(kDescriptorsKept, left / 2);
  const int64_t most = std::clamp<int64_t>(means.memory_mib, 1, kConnectionsMax);
  const int64_t all = std::clamp<int64_t>(left - kept, 1, most);
  // A quarter is for others.
  return {static_cast<int>(all), static_cast<int>(std::max<int64_t>(all - all / 4, 1))};
}

Connections::Connections(ConnectionLimits limits, Clock clock,
                         absl::AnyInvocable<uint64_t(int) const> inode_of)
    : limits_(limits), clock_(std::move(clock)), inode_of_(std::move(inode_of)) {}

Connections::Connections(ConnectionLimits limits, Clock clock)
    : Connections(limits, std::move(clock), SocketInode) {}

Connections::Verdict Connections::Admit(int socket, const Client& client) {
  absl::MutexLock lock(&mutex_);
  // The descriptor is new, so whatever had its number has ended.
  if (const auto former = open_.find(socket); former != open_.end()) Remove(former);
  if (From(client.source) >= limits_.from_one_source) Sweep();
  if (From(client.source) >= limits_.from_one_source) return Verdict::kTooManyFromSource;
  if (IsFull()) return Verdict::kTooMany;
  open_.emplace(socket, Open{inode_of_(socket), client});
  by_peer_[client.peer] = socket;
  ++from_[client.source];
  return Verdict::kAdmitted;
}

std::string Connections::FindSource(absl::string_view peer) const {
  absl::MutexLock lock(&mutex_);
  const auto found = Find(peer);
  return found == open_.end() ? "" : found->second.client.source;
}

bool Connections::IsOpen(absl::string_view peer) const {
  absl::MutexLock lock(&mutex_);
  const auto found = Find(peer);
  return found != open_.end() && inode_of_(found->first) == found->second.inode;
}

bool Connections::IsAnyOpenFrom(const std::string& source) {
  absl::MutexLock lock(&mutex_);
  Sweep();
  return From(source) > 0;
}

void Connections::ShutDown() {
  absl::MutexLock lock(&mutex_);
  for (const auto& [descriptor, connection] : open_)
    if (inode_of_(descriptor) == connection.inode) shutdown(descriptor, SHUT_RDWR);
}

bool Connections::full() {
  absl::MutexLock lock(&mutex_);
  return IsFull();
}

int Connections::open() const {
  absl::MutexLock lock(&mutex_);
  return static_cast<int>(open_.size());
}

bool Connections::IsFull() {
  const auto all = static_cast<size_t>(limits_.all);
  if (open_.size() >= all) Sweep();
  return open_.size() >= all;
}

int Connections::From(const std::string& source) const {
  const auto found = from_.find(source);
  return found == from_.end() ? 0 : found->second;
}

Connections::ByDescriptor::const_iterator Connections::Find(absl::string_view peer) const {
  const auto descriptor = by_peer_.find(peer);
  return descriptor == by_peer_.end() ? open_.end() : open_.find(descriptor->second);
}

void Connections::Remove(ByDescriptor::iterator ended) {
  const Client& client = ended->second.client;
  const auto source = from_.find(client.source);
  if (--source->second == 0) from_.erase(source);
  // A newer connection may have the name.
  const auto named = by_peer_.find(client.peer);
  if (named != by_peer_.end() && named->second == ended->first) by_peer_.erase(named);
  open_.erase(ended);
}

void Connections::Sweep() {
  const int64_t now_ns = clock_();
  if (now_ns < next_sweep_ns_) return;
  next_sweep_ns_ = now_ns + kSweepNs;
  for (auto at = open_.begin(); at != open_.end();) {
    const auto next = std::next(at);
    if (inode_of_(at->first) != at->second.inode) Remove(at);
    at = next;
  }
}

}  // namespace warpcall
