#include "server/transport/chunk_assembler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace warpcall {
namespace {

std::string Text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

std::string Join(const std::vector<grpc::Slice>& slices) {
  std::string text;
  for (const grpc::Slice& slice : slices)
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return text;
}

absl::Status Add(ChunkAssembler* assembler, size_t offset, const std::string& text) {
  // Two pieces, as a message that arrived in two reads.
  const size_t cut = text.size() / 2;
  return assembler->Add(static_cast<int64_t>(offset),
                        {grpc::Slice(text.substr(0, cut)), grpc::Slice(text.substr(cut))});
}

TEST(ChunkAssemblerTest, AnyOrderComesOutInOrder) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 50; ++round) {
    const std::string text = Text(1 + random() % 5000);
    std::vector<size_t> cuts = {0, text.size()};
    for (unsigned i = random() % 20; i > 0; --i) cuts.push_back(random() % text.size());
    std::sort(cuts.begin(), cuts.end());
    std::vector<size_t> order(cuts.size() - 1);
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random);
    ChunkAssembler assembler(static_cast<int64_t>(text.size()));
    std::string out;
    for (const size_t i : order) {
      ASSERT_TRUE(Add(&assembler, cuts[i], text.substr(cuts[i], cuts[i + 1] - cuts[i])).ok());
      const int64_t ready = assembler.complete_bytes() - static_cast<int64_t>(out.size());
      if (random() % 2 == 0) out += Join(assembler.Take(ready / 2));
    }
    EXPECT_EQ(assembler.complete_bytes(), assembler.bytes());
    out += Join(assembler.Take(assembler.held_bytes()));
    EXPECT_EQ(out, text);
    EXPECT_EQ(assembler.held_bytes(), 0);
  }
}

TEST(ChunkAssemblerTest, ShortChunksAreGathered) {
  const std::string text = Text(200'000);
  ChunkAssembler assembler(200'000);
  for (size_t at = 0; at < text.size(); at += 100)
    ASSERT_TRUE(Add(&assembler, at, text.substr(at, 100)).ok());
  EXPECT_EQ(assembler.complete_bytes(), 200'000);
  EXPECT_EQ(assembler.gathered_bytes(), 200'000);
  EXPECT_LE(assembler.held_pieces(), 4);  // of 64 KiB
  std::string out = Join(assembler.Take(777));
  out += Join(assembler.Take(199'223));
  EXPECT_EQ(out, text);
}

TEST(ChunkAssemblerTest, SplintersAreGatheredAndLargePiecesAreNot) {
  ChunkAssembler assembler(30'000);
  const std::string text = Text(10'000);
  std::vector<grpc::Slice> splinters, halves;
  for (size_t at = 0; at < text.size(); at += 50) splinters.emplace_back(text.substr(at, 50));
  for (size_t at = 0; at < text.size(); at += 5'000) halves.emplace_back(text.substr(at, 5'000));
  ASSERT_TRUE(assembler.Add(20'000, splinters).ok());
  EXPECT_EQ(assembler.held_pieces(), 1);
  ASSERT_TRUE(assembler.Add(0, halves).ok());
  EXPECT_EQ(assembler.held_pieces(), 3);
  EXPECT_EQ(assembler.gathered_bytes(), 10'000);
  ASSERT_TRUE(assembler.Add(10'000, splinters).ok());  // behind what was not gathered
  EXPECT_EQ(assembler.held_pieces(), 4);
  EXPECT_EQ(assembler.complete_bytes(), 30'000);
  const std::vector<grpc::Slice> taken = assembler.Take(30'000);
  EXPECT_EQ(Join(taken), text + text + text);
  EXPECT_EQ(taken[0].begin(), halves[0].begin()) << "it was copied";
}

TEST(ChunkAssemblerTest, RefusesWhatLiesOutsideOrComesTwice) {
  ChunkAssembler assembler(100);
  EXPECT_TRUE(Add(&assembler, 40, Text(20)).ok());
  EXPECT_EQ(assembler.complete_bytes(), 0);
  for (const auto& [offset, bytes] : {std::pair<size_t, size_t>{40, 20},
                                      {30, 11},
                                      {59, 1},
                                      {0, 100},
                                      {50, 5},
                                      {90, 11},
                                      {101, 0}})
    EXPECT_FALSE(Add(&assembler, offset, Text(bytes)).ok()) << offset << " " << bytes;
  EXPECT_FALSE(assembler.Add(-1, {grpc::Slice("a")}).ok());
  EXPECT_EQ(assembler.held_bytes(), 20);
  EXPECT_TRUE(Add(&assembler, 100, "").ok());
  EXPECT_TRUE(Add(&assembler, 0, Text(40)).ok());
  EXPECT_EQ(assembler.complete_bytes(), 60);
  assembler.Take(50);
  EXPECT_FALSE(Add(&assembler, 10, Text(5)).ok());  // taken already
  EXPECT_TRUE(Add(&assembler, 60, Text(40)).ok());
}

}  // namespace
}  // namespace warpcall
