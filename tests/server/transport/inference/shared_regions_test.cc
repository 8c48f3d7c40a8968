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
#include <string>

#include "absl/strings/str_cat.h"

namespace warpcall::oip {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMost = std::numeric_limits<uint64_t>::max();
const uint64_t kPage = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));

// An object that is gone at the end.
class SharedObject {
 public:
  explicit SharedObject(uint64_t bytes) {
    // Containers that share such objects may have a process of this number each.
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

class SharedRegionsTest : public ::testing::Test {
 protected:
  int64_t now_ns_ = 1;
  SharedRegions regions_{[this] { return now_ns_; }};
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
  ASSERT_TRUE(regions_.Register(7, {"r", object.key(), 0, 64}).ok());
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
  ASSERT_TRUE(regions_.Register(7, {"r", object.key(), 0, 64}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(regions_.Register(7, {"r", object.key(), 0, 8})));
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

TEST_F(SharedRegionsTest, WhoIsIdleMakesRoomWhenThereIsNoneLeft) {
  SharedObject object(kPage);
  const auto fill = [&](uint64_t owner) {
    for (size_t i = 0; i < SharedRegions::kRegionsPerOwnerMax; ++i)
      ASSERT_TRUE(regions_.Register(owner, {absl::StrCat("r", i), object.key(), 0, 8}).ok());
    EXPECT_TRUE(absl::IsResourceExhausted(regions_.Register(owner, {"more", object.key(), 0, 8})));
  };
  constexpr uint64_t kOwners = MappedRegion::kRegionsMax / SharedRegions::kRegionsPerOwnerMax;
  for (uint64_t owner = 0; owner < kOwners; ++owner) {
    fill(owner);
    ++now_ns_;
  }
  EXPECT_TRUE(absl::IsResourceExhausted(regions_.Register(99, {"r", object.key(), 0, 8})));
  now_ns_ += SharedRegions::kIdleNs - 1;
  ASSERT_TRUE(regions_.Use(0, {"r0", 0, 8}).ok());
  ASSERT_TRUE(regions_.Register(99, {"r", object.key(), 0, 8}).ok());
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
