#include "server/worker/mailbox.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>

namespace warpcall::worker {
namespace {

struct Letter {
  uint64_t number;
  uint64_t body[40];  // all the same number
};

void CopyMessage(const Letter& from, Letter* to) { *to = from; }

Letter LetterOf(uint64_t number) {
  Letter letter = {number, {}};
  for (uint64_t& part : letter.body) part = number;
  return letter;
}

// Two ends of a socket, and a mailbox in zeroed memory.
class MailboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets_), 0);
  }
  void TearDown() override {
    for (const int fd : sockets_) close(fd);
  }
  // Returns true if a bell lies at the reader's end, which is sockets_[1].
  bool Rang() const {
    char bell;
    return recv(sockets_[1], &bell, 1, MSG_DONTWAIT | MSG_PEEK) == 1;
  }

  int sockets_[2];
  std::unique_ptr<Mailbox<Letter>> mailbox_{new Mailbox<Letter>()};
  SpinPlaces none_{0};
};

TEST_F(MailboxTest, AReaderThatIsAwakeIsNotRungFor) {
  ASSERT_TRUE(mailbox_->Put(LetterOf(3), sockets_[0]).ok());
  EXPECT_FALSE(Rang());
  Letter letter;
  ASSERT_TRUE(mailbox_->Take(1, {sockets_[1], &none_}, &letter).ok());
  EXPECT_EQ(letter.body[39], 3u);
}

TEST_F(MailboxTest, AReaderThatSleepsIsRungForOnce) {
  mailbox_->signal.reader_sleeps = 1;
  ASSERT_TRUE(mailbox_->Put(LetterOf(1), sockets_[0]).ok());
  EXPECT_TRUE(Rang());
  EXPECT_EQ(mailbox_->signal.reader_sleeps, 0u);
}

// The message comes after the reader has looked for it and before it says that it sleeps.
TEST_F(MailboxTest, AReaderOnItsWayToSleepLooksOnceMore) {
  ASSERT_TRUE(mailbox_->Put(LetterOf(1), sockets_[0]).ok());
  EXPECT_FALSE(GoToSleep(&mailbox_->signal, 1));
  EXPECT_EQ(mailbox_->signal.reader_sleeps, 0u);
  EXPECT_TRUE(GoToSleep(&mailbox_->signal, 2));
  ASSERT_TRUE(mailbox_->Put(LetterOf(2), sockets_[0]).ok());
  EXPECT_TRUE(Rang());
}

// A reader that was awake has the first message and sleeps, waiting for the second, when the first
// one's writer gets to look whether it sleeps.
TEST_F(MailboxTest, ABellThatComesLateIsNotTakenForTheNextMessages) {
  MailSignal& signal = mailbox_->signal;
  signal.messages = 1;
  std::atomic<bool> is_over{false};
  std::thread late([&] {
    while (signal.reader_sleeps.exchange(0) == 0) std::this_thread::yield();
    const char bell = 0;
    ASSERT_EQ(send(sockets_[0], &bell, 1, 0), 1);
    while (signal.reader_sleeps.load() == 0 && !is_over) std::this_thread::yield();
    ASSERT_TRUE(mailbox_->Put(LetterOf(2), sockets_[0]).ok());
  });
  Letter letter;
  const absl::Status taken = mailbox_->Take(2, {sockets_[1], &none_}, &letter);
  is_over = true;
  late.join();
  ASSERT_TRUE(taken.ok()) << taken;
  EXPECT_EQ(letter.number, 2u);
}

TEST_F(MailboxTest, TheOtherEndsDeathAndBellsForNothingAreErrors) {
  const char bell = 0;
  for (int i = 0; i < 2; ++i) ASSERT_EQ(send(sockets_[0], &bell, 1, 0), 1);
  Letter letter;
  EXPECT_TRUE(absl::IsUnavailable(mailbox_->Take(1, {sockets_[1], &none_}, &letter)));
  shutdown(sockets_[0], SHUT_RDWR);
  SpinPlaces one(1);
  EXPECT_TRUE(absl::IsUnavailable(mailbox_->Take(1, {sockets_[1], &one}, &letter)));
  one.Rest(-SpinPlaces::kRestNs);
  EXPECT_TRUE(one.Take(0));  // was left again
  mailbox_->signal.reader_sleeps = 1;
  EXPECT_EQ(mailbox_->Put(LetterOf(1), sockets_[0]).code(), absl::StatusCode::kUnavailable);
}

// A side that is a little late sleeps, or is about to: it may sleep through no message. The two
// sides map the memory apart, as two processes do.
TEST_F(MailboxTest, NoLetterIsLostOrTornHoweverReadersWait) {
  struct Both {
    Mailbox<Letter> there;
    Mailbox<Letter> back;
  };
  for (const int places : {0, 1, 2}) {
    const int file = memfd_create("test-mail", MFD_CLOEXEC);
    ASSERT_EQ(ftruncate(file, sizeof(Both)), 0);
    Both* maps[2];
    for (Both*& map : maps)
      map = static_cast<Both*>(
          mmap(nullptr, sizeof(Both), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    SpinPlaces spins(places);
    constexpr uint32_t kLetters = 3000;
    std::thread answering([&] {
      for (uint32_t nth = 1; nth <= kLetters; ++nth) {
        Letter letter;
        const absl::Status taken = maps[1]->there.Take(nth, {sockets_[1], &spins}, &letter);
        ASSERT_TRUE(taken.ok()) << taken;
        if (nth % 64 == 0) std::this_thread::yield();
        ASSERT_TRUE(maps[1]->back.Put(LetterOf(letter.number + 1), sockets_[1]).ok());
      }
    });
    for (uint32_t nth = 1; nth <= kLetters; ++nth) {
      ASSERT_TRUE(maps[0]->there.Put(LetterOf(nth), sockets_[0]).ok());
      Letter answer;
      const absl::Status taken = maps[0]->back.Take(nth, {sockets_[0], &spins}, &answer);
      ASSERT_TRUE(taken.ok()) << taken;
      for (const uint64_t part : answer.body) ASSERT_EQ(part, nth + 1);
    }
    answering.join();
    for (Both* map : maps) munmap(map, sizeof(Both));
    close(file);
  }
}

TEST(SpinPlacesTest, OneThreadInFourCoresWaitsAwakeSharedByTheDevices) {
  EXPECT_EQ(SpinPlacesFor(1, 1), 0);
  EXPECT_EQ(SpinPlacesFor(2, 2), 0);
  EXPECT_EQ(SpinPlacesFor(16, 2), 2);
  EXPECT_EQ(SpinPlacesFor(16, 8), 0);
  EXPECT_EQ(SpinPlacesFor(128, 8), 4);
  EXPECT_GE(UsableCores(), 1);
}

TEST(SpinPlacesTest, AreTakenAndLeft) {
  SpinPlaces places(1);
  EXPECT_TRUE(places.Take(5));
  EXPECT_FALSE(places.Take(5));
  places.Leave();
  EXPECT_TRUE(places.Take(5));
}

TEST(SpinPlacesTest, NobodyTakesOneWhileOthersWantTheCores) {
  SpinPlaces places(4);
  places.Rest(1000);
  EXPECT_FALSE(places.Take(1000 + SpinPlaces::kRestNs - 1));
  EXPECT_TRUE(places.Take(1000 + SpinPlaces::kRestNs));
}

}  // namespace
}  // namespace warpcall::worker
