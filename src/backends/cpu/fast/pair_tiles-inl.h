// Tiles of rows times sixteen columns by the instruction of pairs.h, for files with a region for processors that have it: included inside that
// region, in an unnamed namespace, so that no other file shares these functions. Headers are the includer's: immintrin.h, pairs.h.

__m512 add_products(__m512 sum, __m512i w, __m512i x) { return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x)); }

/// Even and odd sums of a block for kRows rows. Places must be known when compiled, so that sums stay in registers.
template <int kRows>
struct Sums {
  __m512 half[2][kRows];

  Sums() {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      half[0][row] = half[1][row] = _mm512_setzero_ps();
    }
  }
  /// Products of the columns' words at a place of the block.
  void add(int place, __m512i columns, const std::uint32_t* x) {
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const auto own = static_cast<int>(x[row * pairs::kBlockWords + place]);
      half[place % 2][row] = add_products(half[place % 2][row], columns, _mm512_set1_epi32(own));
    }
  }
  [[nodiscard]] __m512 joined(int row) const { return _mm512_add_ps(half[0][row], half[1][row]); }
};

/// work(Count<rows>) for 1 .. kMost rows.
template <int kRows>
struct Count {};
template <int kMost, class Work>
void with_count(std::int32_t rows, const Work& work) {
  if constexpr (kMost > 1) {
    if (rows < kMost) {
      return with_count<kMost - 1>(rows, work);
    }
  }
  work(Count<kMost>());
}

/// The first tile of rows times one unit of a panel, added to sums. decode(block, visit) calls visit(place, words of sixteen columns) for a block;
/// they go to `words` too, for the other tiles: where shuffles hide behind products.
template <class Decode>
void multiply_first_tile(const pairs::Rows& x, pairs::Panel panel, std::uint32_t* words, float* sums, const Decode& decode) {
  with_count<pairs::kPanelTileRows>(x.tiling.size(0), [&]<int kRows>(Count<kRows>) {
    const std::uint32_t* rows = x.words + x.tiling.offset(panel.index, 0);
    for (std::int32_t block = 0; block < panel.num_blocks; ++block, rows += kRows * pairs::kBlockWords) {
      Sums<kRows> sums_of_block;
      std::uint32_t* out = words + block * pairs::kBlockWords * pairs::kPanelColumns;
      decode(block, [&](int place, __m512i columns) {
        _mm512_store_si512(out + place * pairs::kPanelColumns, columns);
        sums_of_block.add(place, columns, rows);
      });
#pragma GCC unroll 8
      for (int row = 0; row < kRows; ++row) {
        float* total = sums + row * pairs::kPanelColumns;
        _mm512_store_ps(total, _mm512_add_ps(_mm512_load_ps(total), sums_of_block.joined(row)));
      }
    }
  });
}
