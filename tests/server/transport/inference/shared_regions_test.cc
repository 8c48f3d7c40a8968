#include "server/transport/inference/shared_regions.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/engine/refusal.h"

namespace warpcall::oip {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
const uint64_t kPage = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

// An object that is gone at the end.
class SharedObject {
 public:
  explicit SharedObject(uint64_t bytes) {
    // The random part tells apart processes of one number in containers that share such objects.
    key_ = absl::StrCat("/warpcall_regions_", getpid(), "_", std::random_device()());
    file_ = shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    EXPECT_GE(file_, 0);
    Resize(bytes);
  }
  ~SharedObject() {
    close(file_);
    shm_unlink(key_.c_str());
  }
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  void Resize(uint64_t bytes) { EXPECT_EQ(ftruncate(file_, static_cast<off_t>(bytes)), 0); }
  void Write(uint64_t at, const std::string& text) {
    EXPECT_EQ(pwrite(file_, text.data(), text.size(), static_cast<off_t>(at)),
              static_cast<ssize_t>(text.size()));
  }
  const std::string& key() const { return key_; }

 private:
  std::string key_;
  int file_;
};

// A user with one caller, unless it says another one.
SharedRegions::Caller By(uint64_t id, const std::string& user = "") {
  return {id, user.empty() ? absl::StrCat("user of ", id) : user, absl::StrCat("peer ", id)};
}

class SharedRegionsTest : public ::testing::Test {
 protected:
  // Registers as many regions as the caller may have.
  void Fill(const SharedRegions::Caller& caller) {
    for (size_t i = 0; i < SharedRegions::kRegionsPerOwnerMax; ++i) {
      const absl::Status status = RegisterAs(caller, absl::StrCat("r", i));
      ASSERT_TRUE(status.ok()) << status;
    }
    const absl::Status status = RegisterAs(caller, "more");
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("this caller has 64"));
    EXPECT_EQ(RetryPushbackMs(status), kNeverRetry);
  }
  // Registers as many regions as the user may have, by callers from `first` on.
  void FillUser(const std::string& user, uint64_t first) {
    constexpr uint64_t kCallers =
        SharedRegions::kRegionsPerUserMax / SharedRegions::kRegionsPerOwnerMax;
    for (uint64_t id = first; id < first + kCallers; ++id) {
      Fill(By(id, user));
      ++now_ns_;
    }
  }
  absl::Status RegisterAs(const SharedRegions::Caller& caller, const std::string& name) {
    return regions_.Register(caller, {name, object_.key(), 0, 8});
  }
  void ExpectUserIsFull(const absl::Status& status) {
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(status.message(),
                HasSubstr("user has 256 regions of shared memory; the limit is 256"));
    EXPECT_GT(RetryPushbackMs(status).value_or(0), 0);
  }

  int64_t now_ns_ = 1;
  std::set<uint64_t> ended_;
  SharedObject object_{kPage};
  SharedRegions regions_{
      [this] { return now_ns_; },
      [this](const SharedRegions::Caller& caller) { return ended_.contains(caller.id); }};
};

TEST_F(SharedRegionsTest, AreMappedWhereTheyAreSaidToBegin) {
  SharedObject object(3 * kPage);
  object.Write(kPage + 8, "here");
  const auto region = MappedRegion::Map(object.key(), kPage + 8, 4);
  ASSERT_TRUE(region.ok()) << region.status();
  EXPECT_EQ(std::string((*region)->data(), (*region)->bytes()), "here");
  EXPECT_FALSE((*region)->lost());
}

TEST_F(SharedRegionsTest, RangesMustLieInTheObject) {
  SharedObject object(kPage);
  EXPECT_TRUE(MappedRegion::Map(object.key(), kPage - 1, 1).ok());
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{0, kPage + 1},
                                      {kPage, 1},
                                      {1, kMost},
                                      {kMost, 1},
                                      {kMost, kMost},
                                      {kPage, 0},
                                      {0, 0}}) {
    const absl::Status status = MappedRegion::Map(object.key(), offset, bytes).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << offset << " " << bytes;
    EXPECT_THAT(status.message(), HasSubstr(absl::StrCat("has ", kPage, " bytes")));
  }
  for (const std::string& key :
       {std::string(), std::string("/"), std::string("/.."), std::string("name"),
        std::string("/a/b"), std::string("/a\0b", 4), "/" + std::string(255, 'k')})
    EXPECT_TRUE(absl::IsInvalidArgument(MappedRegion::Map(key, 0, 1).status())) << key;
}

TEST_F(SharedRegionsTest, UsesMustLieInTheRegion) {
  SharedObject object(kPage);
  ASSERT_TRUE(regions_.Register(By(7), {"r", object.key(), 0, 64}).ok());
  for (const auto& [offset, bytes] :
       {std::pair<uint64_t, uint64_t>{0, 64}, {64, 0}, {63, 1}, {0, 0}})
    EXPECT_TRUE(regions_.Use(7, {"r", offset, bytes}).ok()) << offset << " " << bytes;
  for (const auto& [offset, bytes] : {std::pair<uint64_t, uint64_t>{0, 65},
                                      {64, 1},
                                      {65, 0},
                                      {1, kMost},
                                      {kMost, 1},
                                      {kMost, kMost}})
    EXPECT_TRUE(absl::IsInvalidArgument(regions_.Use(7, {"r", offset, bytes}).status()))
        << offset << " " << bytes;
}

TEST_F(SharedRegionsTest, BelongToWhoRegisteredThem) {
  SharedObject object(kPage);
  ASSERT_TRUE(regions_.Register(By(7), {"r", object.key(), 0, 64}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(regions_.Register(By(7), {"r", object.key(), 0, 8})));
  EXPECT_TRUE(absl::IsNotFound(regions_.Use(8, {"r", 0, 8}).status()));
  EXPECT_TRUE(absl::IsNotFound(regions_.Find(8, "r").status()));
  EXPECT_TRUE(regions_.Find(8, "")->empty());
  regions_.Unregister(8, "");
  EXPECT_EQ(regions_.Find(7, "")->size(), 1u);
  const std::shared_ptr<MappedRegion> used = *regions_.Use(7, {"r", 0, 8});
  regions_.Unregister(7, "r");
  EXPECT_TRUE(absl::IsNotFound(regions_.Use(7, {"r", 0, 8}).status()));
  used->data()[63] = 'x';  // still mapped
  EXPECT_EQ(used.use_count(), 1);
}

TEST_F(SharedRegionsTest, OneUserLeavesPlacesForOthersByHoweverManyCallers) {
  FillUser("a", 0);
  for (uint64_t id = 10; id < 30; ++id) ExpectUserIsFull(RegisterAs(By(id, "a"), "r"));
  EXPECT_TRUE(RegisterAs(By(30, "b"), "r").ok());
  FillUser("c", 40);
  EXPECT_TRUE(RegisterAs(By(31, "b"), "r").ok());
}

TEST_F(SharedRegionsTest, UnregisteringGivesThePlaceBackOnceNobodyUsesIt) {
  FillUser("a", 0);
  std::shared_ptr<MappedRegion> used = *regions_.Use(3, {"r0", 0, 8});
  regions_.Unregister(3, "r0");
  ExpectUserIsFull(RegisterAs(By(9, "a"), "r"));
  used.reset();
  EXPECT_TRUE(RegisterAs(By(9, "a"), "r").ok());
  ExpectUserIsFull(RegisterAs(By(9, "a"), "s"));
  regions_.Unregister(2, "");
  Fill(By(2, "a"));
  ExpectUserIsFull(RegisterAs(By(9, "a"), "s"));
}

TEST_F(SharedRegionsTest, CallersThatHaveEndedMakeRoomForTheirUser) {
  Fill(By(50, "b"));
  FillUser("a", 0);
  ended_ = {1, 50};
  Fill(By(9, "a"));
  EXPECT_TRUE(regions_.Find(1, "")->empty());
  EXPECT_EQ(regions_.Find(0, "")->size(), SharedRegions::kRegionsPerOwnerMax);
  EXPECT_EQ(regions_.Find(50, "")->size(), SharedRegions::kRegionsPerOwnerMax);
  ended_ = {};
  ExpectUserIsFull(RegisterAs(By(10, "a"), "r"));
  now_ns_ += SharedRegions::kIdleNs;
  EXPECT_TRUE(RegisterAs(By(10, "a"), "r").ok());
  EXPECT_TRUE(regions_.Find(0, "")->empty());  // the idlest
}

TEST_F(SharedRegionsTest, WhoHasEndedOrIsIdleMakesRoomWhenThereIsNoneLeft) {
  constexpr uint64_t kOwners = MappedRegion::kRegionsMax / SharedRegions::kRegionsPerOwnerMax;
  for (uint64_t owner = 0; owner < kOwners; ++owner) {
    Fill(By(owner));
    ++now_ns_;
  }
  const absl::Status full = RegisterAs(By(99), "r");
  EXPECT_TRUE(absl::IsResourceExhausted(full));
  EXPECT_THAT(full.message(), HasSubstr("1024"));
  EXPECT_GT(RetryPushbackMs(full).value_or(0), 0);
  ended_ = {5};
  ASSERT_TRUE(RegisterAs(By(98), "r").ok());
  EXPECT_TRUE(regions_.Find(5, "")->empty());
  ended_ = {};
  for (size_t i = 1; i < SharedRegions::kRegionsPerOwnerMax; ++i)
    ASSERT_TRUE(RegisterAs(By(98), absl::StrCat("r", i)).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(RegisterAs(By(99), "r")));
  now_ns_ = kOwners + SharedRegions::kIdleNs - 1;
  ASSERT_TRUE(regions_.Use(0, {"r0", 0, 8}).ok());
  ASSERT_TRUE(RegisterAs(By(99), "r").ok());
  EXPECT_EQ(regions_.Find(0, "")->size(), SharedRegions::kRegionsPerOwnerMax);
  EXPECT_TRUE(regions_.Find(1, "")->empty());
  EXPECT_EQ(regions_.Find(2, "")->size(), SharedRegions::kRegionsPerOwnerMax);
}

TEST_F(SharedRegionsTest, AnObjectThatIsMadeSmallerReadsAsZeros) {
  SharedObject object(4 * kPage);
  object.Write(0, "first");
  object.Write(3 * kPage, "last");
  const std::shared_ptr<MappedRegion> region = *MappedRegion::Map(object.key(), 0, 4 * kPage);
  object.Resize(kPage);
  EXPECT_EQ(std::string(region->data(), 5), "first");
  EXPECT_FALSE(region->lost());
  EXPECT_EQ(region->data()[3 * kPage], '\0');
  EXPECT_TRUE(region->lost());
  std::memset(region->data(), 'x', 4 * kPage);
  // Another one is not: its place is another's.
  SharedObject other(kPage);
  EXPECT_FALSE((*MappedRegion::Map(other.key(), 0, kPage))->lost());
}

}  // namespace
}  // namespace warpcall::oip
