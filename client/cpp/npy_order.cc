#include "client/cpp/npy_order.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <vector>

namespace warpcall::client {
namespace {

// Tile size along the first and the last index: a tile fits the cache on both sides.
constexpr int64_t kTile = 64;

// Elements of the first and the last index, with all those between fixed.
struct Plane {
  int64_t rows, columns;       // sizes of the first index and of the last
  int64_t from_column_stride;  // stride of the last index; the first index has 1
  int64_t to_row_stride;       // stride of the first index; the last index has 1
};

template <typename Element>
void CopyPlane(const Plane& plane, const Element* from, Element* to) {
  for (int64_t row = 0; row < plane.rows; row += kTile)
    for (int64_t column = 0; column < plane.columns; column += kTile)
      for (int64_t i = row; i < std::min(row + kTile, plane.rows); ++i)
        for (int64_t j = column; j < std::min(column + kTile, plane.columns); ++j)
          to[i * plane.to_row_stride + j] = from[i + j * plane.from_column_stride];
}

template <typename Element>
void Reorder(absl::Span<const int64_t> shape, const Element* from, Element* to) {
  const int64_t count =
      std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  if (count == 0) return;
  if (shape.size() < 2) {
    std::copy(from, from + count, to);
    return;
  }
  const Plane plane{shape.front(), shape.back(), count / shape.back(), count / shape.front()};
  const absl::Span<const int64_t> middle = shape.subspan(1, shape.size() - 2);
  std::vector<int64_t> index(middle.size(), 0);
  // One plane for each of the indices between, the last of which runs fastest on the way out.
  for (int64_t done = 0; done < plane.to_row_stride / plane.columns; ++done) {
    int64_t at = 0;
    for (size_t k = middle.size(); k-- > 0;) at = at * middle[k] + index[k];
    CopyPlane(plane, from + at * plane.rows, to + done * plane.columns);
    for (size_t k = middle.size(); k-- > 0;) {
      if (++index[k] < middle[k]) break;
      index[k] = 0;
    }
  }
}

}  // namespace

void ToRowMajor(absl::Span<const int64_t> shape, size_t element_bytes, const char* from, char* to) {
  if (element_bytes == 2)
    Reorder(shape, reinterpret_cast<const uint16_t*>(from), reinterpret_cast<uint16_t*>(to));
  else
    Reorder(shape, reinterpret_cast<const uint32_t*>(from), reinterpret_cast<uint32_t*>(to));
}

}  // namespace warpcall::client
