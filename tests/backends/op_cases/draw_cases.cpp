// Tokens of logits: all parameters, masks, ties, rows without a finite or an allowed logit.
#include <cmath>
#include <limits>

#include "backends/op_cases/builders.h"

namespace deepinfer::test {
namespace {

constexpr float kRemoved = -std::numeric_limits<float>::infinity();
constexpr std::uint32_t kBias = 7, kMask = 8;

/// Some rows with many equal logits, all equal ones, removed columns, nothing but removed columns.
std::vector<float> make_logits(std::span<const std::int32_t> rows, std::int32_t vocab) {
  std::vector<float> out = random_floats(kRowInput, rows, vocab, 4.0F);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    RowRandom random = row_random(kBias, rows[r] % kPoisoned);
    const std::int32_t kind = rows[r] % kPoisoned % 11;
    for (float& x : std::span(out).subspan(r * static_cast<std::size_t>(vocab), static_cast<std::size_t>(vocab))) {
      x = kind == 1 || kind == 5 ? std::round(x) : x;
      x = kind == 2 && !std::isnan(x) ? 0.0F : x;
      x = kind == 6 && x == x && random() % 3 != 0 ? kRemoved : x;
      x = kind == 10 && x == x ? kRemoved : x;
    }
  }
  return out;
}

TokenDraw make_draw(std::int32_t row) {
  TokenDraw out{.seed = 1234567890123ULL * static_cast<std::uint64_t>(row + 1), .position = std::int64_t{row} * 1'000'003};
  constexpr double kTemperatures[] = {1.0, 0.0, 0.6, 0.05, 2.5};
  constexpr double kTopPs[] = {1.0, 0.95, 0.5, 1e-9, 0.999999, 1.0};
  constexpr std::int32_t kTopKs[] = {-1, -1, 1, 20, 5, 100'000'000, 300};
  out.temperature = kTemperatures[row % 5];
  out.top_p = kTopPs[row / 2 % 6];
  out.top_k = kTopKs[row / 3 % 7];
  out.min_p = row % 4 == 2 ? 0.1 : 0.0;
  return out;
}

}  // namespace

OpCase draw_tokens_case(std::int32_t vocab) {
  OpCase out{.op = "draw_tokens", .shape = std::to_string(vocab), .prepare = {}};
  out.prepare = [vocab](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::int32_t num_words = (vocab + 31) / 32;
    std::vector<TokenDraw> draws;
    std::vector<std::uint32_t> masks;
    std::vector<std::int32_t> index;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::int32_t row = rows[r] % kPoisoned;
      draws.push_back(make_draw(row));
      index.push_back(static_cast<std::int32_t>(r));
      if (row % 3 == 0) {
        continue;
      }
      draws.back().mask = static_cast<std::int32_t>(masks.size()) / num_words;
      RowRandom random = row_random(kMask, row);
      for (std::int32_t word = 0; word < num_words; ++word) {
        const std::uint32_t few = word == row % num_words ? 1U << (row % vocab % 32) : 0U;
        masks.push_back(row % 8 == 1 ? few : row % 17 == 7 ? 0U : random() & random());
      }
    }
    const std::size_t num_rows = rows.size();
    const DrawTokensParams p{.num_rows = static_cast<std::int32_t>(rows.size()),
                             .vocab = vocab,
                             .logits = memory->put(make_logits(rows, vocab)),
                             .row_index = rows.size() % 2 == 0 ? memory->put(index) : nullptr,
                             .draw = memory->put(draws),
                             .masks = memory->put(masks),
                             .token = memory->room<std::int32_t>(rows.size())};
    return PreparedOp{
        .memory = memory,
        .run = [p](Ops& ops, Stream& stream) { ops.draw_tokens(stream, p); },
        .outputs = [=] { return std::vector{exact_output("token", memory->read(p.token, num_rows), num_rows)}; },
        .bytes = 4.0 * p.num_rows * vocab};
  };
  return out;
}

}  // namespace deepinfer::test
