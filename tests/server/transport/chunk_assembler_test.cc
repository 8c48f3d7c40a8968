#include "server/transport/chunk_assembler.h"

#include <gtest/gtest.h>

#include <string>

namespace warpcall {
namespace {

std::string Text(size_t bytes) {
  std::string text(bytes, '\0');
  for (size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>(i * 31 + i / 251);
  return text;
}

std::string Join(const Slices& slices) {
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

TEST(ChunkAssemblerTest, ShortChunksAreGathered) {
  const std::string text = Text(200'000);
  ChunkAssembler assembler(200'000);
  for (size_t at = 0; at < text.size(); at += 100)
    ASSERT_TRUE(Add(&assembler, at, text.substr(at, 100)).ok());
  EXPECT_EQ(assembler.complete_bytes(), 200'000);
  EXPECT_EQ(assembler.gathered_bytes(), 200'000);
  EXPECT_LE(assembler.held_pieces(), 4);  // 64 KiB each
  std::string out = Join(assembler.Take(777));
  out += Join(assembler.Take(199'223));
  EXPECT_EQ(out, text);
}

TEST(ChunkAssemblerTest, SplintersAreGatheredAndLargePiecesAreNot) {
  ChunkAssembler assembler(30'000);
  const std::string text = Text(10'000);
  Slices splinters, halves;
  for (size_t at = 0; at < text.size(); at += 50) splinters.Add(grpc::Slice(text.substr(at, 50)));
  for (size_t at = 0; at < text.size(); at += 5'000)
    halves.Add(grpc::Slice(text.substr(at, 5'000)));
  ASSERT_TRUE(assembler.Add(20'000, splinters).ok());
  EXPECT_EQ(assembler.held_pieces(), 1);
  ASSERT_TRUE(assembler.Add(0, halves).ok());
  EXPECT_EQ(assembler.held_pieces(), 3);
  EXPECT_EQ(assembler.gathered_bytes(), 10'000);
  ASSERT_TRUE(assembler.Add(10'000, splinters).ok());  // behind what was not gathered
  EXPECT_EQ(assembler.held_pieces(), 4);
  EXPECT_EQ(assembler.complete_bytes(), 30'000);
  const Slices taken = assembler.Take(30'000);
  EXPECT_EQ(Join(taken), text + text + text);
  EXPECT_EQ(taken[0].begin(), halves[0].begin()) << "it was copied";
}

TEST(ChunkAssemblerDeathTest, HandsOutWhatHasCome) {
  ChunkAssembler assembler(10);
  ASSERT_TRUE(Add(&assembler, 0, "abc").ok());
  ASSERT_TRUE(Add(&assembler, 5, "fgh").ok());
  EXPECT_DEATH(assembler.Take(4), "complete_ - taken_");
  EXPECT_EQ(Join(assembler.Take(3)), "abc");
}

}  // namespace
}  // namespace warpcall
