#include <algorithm>
#include <cstdint>

#include "kernels/softmax/softmax.h"
#include "tests/kernels/variant_problems.h"

namespace warpcall::testing {
namespace {

struct Rows {
  int64_t count;
  int64_t n;
};

// The longest first: so that each variant meets those that it just has room for before it meets
// shorter ones.
std::vector<Rows> RowCases() {
  std::vector<Rows> rows;
  // Every length that shares a warp, more rows than a block has.
  for (int64_t n = 1; n <= 129; ++n) rows.push_back({67, n});
  // Around the capacities of warps and blocks: the longest that fit wherever they start are 3
  // elements of float32 short of one, and 7 of 16 bits. Rows enough that they start everywhere in a
  // vector, and no whole number of blocks.
  for (const int64_t capacity : {256, 512, 768, 1024, 1536, 2048})
    for (const int64_t less : {8, 7, 6, 4, 3, 1, 0, -1}) rows.push_back({9, capacity - less});
  for (const int64_t capacity : {3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768})
    for (const int64_t less : {8, 7, 3, 1, 0, -1}) rows.push_back({5, capacity - less});
  // two_pass takes 16384 elements a step, or chunks of 512 vectors and more: around one, two and
  // three steps, whole and in chunks, and rows enough that each has a block to itself.
  for (const int64_t n :
       {2056, 4104, 16376, 16377, 18440, 20488, 20489, 24577, 49152, 49153, 65537, 131080, 131083})
    rows.push_back({3, n});
  rows.push_back({264, 40});
  rows.push_back({264, 41});
  rows.push_back({265, 16400});
  rows.push_back({265, 16403});
  // Clusters: rows enough that each takes several, of one block and of more; and the longest.
  rows.push_back({800, 2056});
  rows.push_back({90, 32776});
  rows.push_back({2, 524288});
  // Few rows so long that their chunks take several steps when the row cuts them.
  rows.push_back({1, 4400008});
  rows.push_back({2, 2200013});
  std::stable_sort(rows.begin(), rows.end(),
                   [](const Rows& a, const Rows& b) { return a.n > b.n; });
  return rows;
}

}  // namespace

std::vector<VariantProblem> SoftmaxVariantProblems(DataType type) {
  std::vector<VariantProblem> problems;
  for (const Rows& rows : RowCases())
    problems.push_back(NameProblem(SoftmaxOp(), {{type, {rows.count, rows.n}}}, {}));
  // Axes with a stride: columns in vectors and not; an axis that one thread holds, that several do,
  // and that is read twice; tiles that end inside the columns; slabs side by side.
  const std::vector<Dims> shapes = {{3, 37, 5},     {2, 16, 64},  {2, 17, 64},   {5, 9, 8},
                                    {1, 1000, 17},  {2, 300, 72}, {1, 5000, 8},  {1, 9001, 3},
                                    {1, 9000, 64},  {40, 6, 24},  {1, 2, 70000}, {300, 4, 3},
                                    {1, 1031, 520}, {2, 129, 33}, {7, 15, 1000}, {131, 40, 24}};
  // Rings: around whole chunks, of panels that end inside a row of theirs; the longest axes; panels
  // enough that each cluster takes several.
  const std::vector<Dims> rings = {{1, 1024, 136}, {1, 1025, 136}, {1, 20480, 8},   {1, 20481, 264},
                                   {1, 40960, 8},  {1, 40961, 8},  {1, 1025, 4400}, {3, 8193, 200}};
  for (const std::vector<Dims>* const list : {&shapes, &rings})
    for (const Dims& dims : *list)
      problems.push_back(NameProblem(SoftmaxOp(), {{type, dims}}, {{"axis", int64_t{1}}}));
  return problems;
}

}  // namespace warpcall::testing
