// Cases of attention, of the index and of the stores that work on chunks. Row i is position first_position + i of one of two requests;
// consecutive rows form a chunk, so choosing other rows moves keys between the ring and the step without changing a result.
#include <algorithm>

#include "backends/cpu/block_codecs.h"
#include "backends/op_cases/builders.h"

namespace deepinfer::test {
namespace {

constexpr std::int32_t kNumSlots = 4;
constexpr std::int32_t kMaxBlocks = 16;
constexpr std::int32_t kRowsOfFirstRequest = 40;  ///< row ids below belong to request 0, the others to request 1

std::string text_of(HeadShape s) {
  return std::to_string(s.heads) + "x" + std::to_string(s.head_dim) + " rope " + std::to_string(s.rope_dim);
}

double rows_of(std::span<const std::int32_t> rows) { return static_cast<double>(rows.size()); }

std::int32_t request_of(std::int32_t row) { return row < kRowsOfFirstRequest ? 0 : 1; }

/// Row ids of a case that starts at `first_position`, as many as the blocks of a request hold.
std::int32_t most_rows(std::int32_t first_position) {
  return std::min(1000, kMaxBlocks * kBlockPositions - first_position + kRowsOfFirstRequest);
}

/// The chosen rows as chunks, on the host.
struct Layout {
  std::vector<std::int32_t> position, chunk;
  std::vector<std::int32_t> first_row, num_rows, first_position, slot, block_table;

  /// Cache block that holds block `index` of the request: scattered.
  static std::int32_t block(std::int32_t request, std::int32_t index) {
    return 1 + (index * 7 + request * 3) % kMaxBlocks + request * kMaxBlocks;
  }
  static constexpr std::int32_t kNumBlocks = 2 * kMaxBlocks + 1;
};

Layout make_layout(std::span<const std::int32_t> rows, std::int32_t first_position) {
  Layout out;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const bool continues = i > 0 && rows[i] == rows[i - 1] + 1 && request_of(rows[i]) == request_of(rows[i - 1]);
    const std::int32_t position = first_position + rows[i] - (request_of(rows[i]) == 0 ? 0 : kRowsOfFirstRequest);
    if (!continues) {
      out.first_row.push_back(static_cast<std::int32_t>(i));
      out.num_rows.push_back(0);
      out.first_position.push_back(position);
      out.slot.push_back(1 + request_of(rows[i]));
      for (std::int32_t block = 0; block < kMaxBlocks; ++block) {
        out.block_table.push_back(Layout::block(request_of(rows[i]), block));
      }
    }
    ++out.num_rows.back();
    out.position.push_back(position);
    out.chunk.push_back(static_cast<std::int32_t>(out.num_rows.size()) - 1);
  }
  return out;
}

RowTable put_rows(OpMemory& memory, const Layout& layout) {
  return {.num_rows = static_cast<std::int32_t>(layout.position.size()),
          .position = memory.put(layout.position),
          .chunk = memory.put(layout.chunk)};
}

ChunkTable put_chunks(OpMemory& memory, const Layout& layout) {
  return {.num_chunks = static_cast<std::int32_t>(layout.num_rows.size()),
          .first_row = memory.put(layout.first_row),
          .num_rows = memory.put(layout.num_rows),
          .first_position = memory.put(layout.first_position),
          .slot = memory.put(layout.slot),
          .block_table = memory.put(layout.block_table),
          .max_blocks = kMaxBlocks};
}

/// The window record of a position of a request.
std::vector<std::uint8_t> window_record_of(std::int32_t request, std::int32_t position, std::int32_t head_dim) {
  const std::vector<std::int32_t> id = {position};
  const std::vector<bf16> x = random_bf16(20 + static_cast<std::uint32_t>(request), id, head_dim);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(window_record_bytes(head_dim)));
  cpu::quantise_q8(x.data(), head_dim, out.data(), out.data() + head_dim);
  return out;
}

/// Compressed records of both requests in their blocks.
std::vector<std::uint8_t> compressed_store(std::int32_t head_dim, std::int32_t rows_per_block) {
  const std::int32_t record_bytes = compressed_record_bytes(head_dim);
  std::vector<std::uint8_t> out(static_cast<std::size_t>(Layout::kNumBlocks) * rows_per_block * record_bytes);
  const std::vector<bf16> x = random_bf16(30, first_rows(Layout::kNumBlocks * rows_per_block), head_dim);
  for (std::int64_t row = 0; row < std::int64_t{Layout::kNumBlocks} * rows_per_block; ++row) {
    std::uint8_t* record = out.data() + row * record_bytes;
    cpu::quantise_q4_kv(x.data() + row * head_dim, head_dim, record, record + head_dim / 2);
  }
  return out;
}

/// Some of the visible rows, ascending, padded with -1.
std::vector<std::int32_t> random_list(std::int32_t row, std::int32_t visible, std::int32_t top_k) {
  std::vector<std::int32_t> all = first_rows(visible);
  RowRandom random = row_random(31, row);
  std::ranges::shuffle(all, random);
  all.resize(static_cast<std::size_t>(std::min(visible, top_k)));
  std::ranges::sort(all);
  all.resize(static_cast<std::size_t>(top_k), -1);
  return all;
}

/// Index keys of both requests in their blocks. Small integers as codes under the scale 1: with weights that are multiples of 1/4 every
/// score is exact in fp32, with many ties.
std::vector<std::uint8_t> index_key_store(std::int32_t dim, std::int32_t rows_per_block) {
  std::vector<std::uint8_t> out(static_cast<std::size_t>(Layout::kNumBlocks) * rows_per_block * index_key_bytes(dim));
  RowRandom random = row_random(40, 0);
  for (std::int32_t block = 0; block < Layout::kNumBlocks; ++block) {
    std::uint8_t* codes = out.data() + std::int64_t{block} * rows_per_block * index_key_bytes(dim);
    std::generate_n(codes, rows_per_block * dim / 2, [&] { return static_cast<std::uint8_t>(random()); });
    std::fill_n(codes + rows_per_block * dim / 2, rows_per_block * dim / kQ4IndexGroup, std::uint8_t{127});
  }
  return out;
}

/// Leaves every key the codes of one group, under a scale from 1/4 to 4, and gives the empty groups scales that are far away.
void make_uneven(std::vector<std::uint8_t>& keys, std::int32_t dim, std::int32_t rows_per_block) {
  const std::int32_t groups = dim / kQ4IndexGroup;
  RowRandom random = row_random(41, 0);
  for (std::int64_t row = 0; row < std::int64_t{Layout::kNumBlocks} * rows_per_block; ++row) {
    std::uint8_t* block = keys.data() + row / rows_per_block * rows_per_block * index_key_bytes(dim);
    std::uint8_t* codes = block + row % rows_per_block * (dim / 2);
    std::uint8_t* scales = block + rows_per_block * (dim / 2) + row % rows_per_block * groups;
    const auto kept = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(groups));
    for (std::int32_t group = 0; group < groups; ++group) {
      if (group == kept) {
        scales[group] = static_cast<std::uint8_t>(125 + random() % 5);
      } else {
        std::fill_n(codes + group * kQ4IndexGroup / 2, kQ4IndexGroup / 2, std::uint8_t{0});
        scales[group] = static_cast<std::uint8_t>(97 + random() % 61);
      }
    }
  }
}

}  // namespace

OpCase store_ring_case(HeadShape shape) {
  OpCase out{.op = "store_ring", .shape = text_of(shape), .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    constexpr std::int32_t kRing = 21;
    auto memory = std::make_shared<OpMemory>(device);
    const Layout layout = make_layout(rows, 5);
    const std::int32_t record_bytes = window_record_bytes(shape.head_dim);
    const std::size_t ring_bytes = static_cast<std::size_t>(kNumSlots) * kRing * record_bytes;
    std::vector<std::uint8_t> own;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::vector<std::uint8_t> record = window_record_of(request_of(rows[i]), layout.position[i], shape.head_dim);
      own.insert(own.end(), record.begin(), record.end());
    }
    std::vector<std::int32_t> stored = layout.num_rows;
    if (!stored.empty()) {
      stored.back() = rows.size() == 1 ? stored.back() : stored.back() / 2;  // a chunk that stores its last rows only
    }
    const StoreRingParams p{.chunks = put_chunks(*memory, layout),
                            .record_bytes = record_bytes,
                            .ring_rows = kRing,
                            .stored_rows = memory->put(stored),
                            .own = memory->put(own),
                            .ring = memory->put(std::vector<std::uint8_t>(ring_bytes))};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.store_ring(stream, p); },
                      .outputs = [=] { return std::vector{exact_output("ring", memory->read(p.ring, ring_bytes), 0)}; },
                      .bytes = rows_of(rows) * 2.0 * record_bytes};
  };
  return out;
}

OpCase compress_pairs_case(HeadShape shape) {
  OpCase out{.op = "compress_pairs", .shape = text_of(shape), .sum_length = 2, .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    constexpr std::int32_t kTail = 7;
    auto memory = std::make_shared<OpMemory>(device);
    const Layout layout = make_layout(rows, 0);
    const std::int32_t d = shape.head_dim;
    std::vector<std::int32_t> groups;
    std::vector<float> tail(static_cast<std::size_t>(kNumSlots) * kTail * 2 * d);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (layout.position[i] % 2 == 1) {
        groups.push_back(static_cast<std::int32_t>(i));
      }
      const bool starts_chunk = layout.first_row[layout.chunk[i]] == static_cast<std::int32_t>(i);
      if (starts_chunk && layout.position[i] > 0) {  // the row before is in the tail
        const std::vector<std::int32_t> before = {rows[i] - 1};
        const std::size_t place =
            (static_cast<std::size_t>(layout.slot[layout.chunk[i]]) * kTail + (layout.position[i] - 1) % kTail) * 2 * d;
        std::ranges::copy(random_floats(2, before, d), tail.begin() + static_cast<std::ptrdiff_t>(place));
        std::ranges::copy(random_floats(1, before, d), tail.begin() + static_cast<std::ptrdiff_t>(place) + d);
      }
    }
    const std::size_t count = groups.size() * static_cast<std::size_t>(d);
    const CompressPairsParams p{.rows = put_rows(*memory, layout),
                                .chunks = put_chunks(*memory, layout),
                                .head_dim = d,
                                .tail_rows = kTail,
                                .num_groups = static_cast<std::int32_t>(groups.size()),
                                .group_row = memory->put(groups),
                                .value = memory->put(random_floats(1, rows, d)),
                                .gate = memory->put(random_floats(2, rows, d, 2.0F)),
                                .tail = memory->put(tail),
                                .pooled = memory->room<bf16>(count)};
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.compress_pairs(stream, p); },
                      .outputs =
                          [=] {
                            return std::vector{bf16_output("pooled", memory->read(p.pooled, count), 0),
                                               exact_output("tail", memory->read(p.tail, tail.size()), 0)};
                          },
                      .bytes = rows_of(rows) * 16.0 * d};
  };
  return out;
}

OpCase attend_case(AttendShape shape) {
  const std::int32_t d = shape.head.head_dim;
  OpCase out{.op = "attend",
             .shape = text_of(shape.head) + " window " + std::to_string(shape.window) + " top " + std::to_string(shape.top_k) + " ratio " +
                      std::to_string(shape.ratio) + " from " + std::to_string(shape.first_position),
             .sum_length = d,
             .max_rows = most_rows(shape.first_position),
             .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const Layout layout = make_layout(rows, shape.first_position);
    const std::int32_t ring_rows = shape.window + 6;
    const std::int32_t rows_per_block = shape.ratio > 0 ? kBlockPositions / shape.ratio : 1;
    const std::int32_t record_bytes = window_record_bytes(d);
    std::vector<std::uint8_t> own;
    std::vector<std::uint8_t> ring(static_cast<std::size_t>(kNumSlots) * ring_rows * record_bytes, 0x7F);  // NaN codes
    std::vector<std::int32_t> low, high, list;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int32_t chunk = layout.chunk[i];
      const std::vector<std::uint8_t> record = window_record_of(request_of(rows[i]), layout.position[i], d);
      own.insert(own.end(), record.begin(), record.end());
      low.push_back(std::max(0, layout.position[i] - shape.window + 1));
      high.push_back(shape.sees_block ? layout.first_position[chunk] + layout.num_rows[chunk] - 1 : layout.position[i]);
      if (!shape.sees_block && rows[i] % 11 == 7) {
        high.back() = low.back() - 1;  // no window row
      }
      if (shape.ratio > 0) {
        const std::vector<std::int32_t> chosen =
            random_list(rows[i], rows[i] % 13 == 5 ? 0 : (layout.position[i] + 1) / shape.ratio, shape.top_k);
        list.insert(list.end(), chosen.begin(), chosen.end());
      }
      for (std::int32_t t = std::max(0, layout.first_position[chunk] - shape.window); t < layout.first_position[chunk]; ++t) {
        const std::vector<std::uint8_t> held = window_record_of(request_of(rows[i]), t, d);
        std::ranges::copy(held, ring.begin() + (std::ptrdiff_t{layout.slot[chunk]} * ring_rows + t % ring_rows) * record_bytes);
      }
    }
    std::int32_t max_window = 0;
    for (std::size_t i = 0; i < low.size(); ++i) {
      max_window = std::max(max_window, high[i] - low[i] + 1);
    }
    std::vector<float> sink = random_floats(4, std::vector<std::int32_t>{0}, shape.head.heads);
    sink[0] = 60.0F;
    sink.back() = -1e30F;
    const std::size_t count = rows.size() * static_cast<std::size_t>(shape.head.heads * d);
    const AttendParams p{.rows = put_rows(*memory, layout),
                         .chunks = put_chunks(*memory, layout),
                         .heads = shape.head.heads,
                         .head_dim = d,
                         .rope_dim = shape.head.rope_dim,
                         .ring_rows = ring_rows,
                         .q = memory->put(random_bf16(1, rows, shape.head.heads * d)),
                         .own = memory->put(own),
                         .ring = memory->put(ring),
                         .window_low = memory->put(low),
                         .window_high = memory->put(high),
                         .max_window = max_window,
                         .list = shape.ratio > 0 ? memory->put(list) : nullptr,
                         .top_k = shape.top_k,
                         .ratio = shape.ratio,
                         .rows_per_block = rows_per_block,
                         .compressed = shape.ratio > 0 ? memory->put(compressed_store(d, rows_per_block)) : nullptr,
                         .sink = memory->put(sink),
                         .rope = put_rope(*memory, layout.position, shape.head.rope_dim),
                         .o = memory->room<bf16>(count),
                         .q8 = {memory->room<std::uint8_t>(count), memory->room<std::uint8_t>(count / kQ8Group)}};
    double keys = 0;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      keys += std::max(0, high[i] - low[i] + 1) + (shape.ratio > 0 ? std::min(shape.top_k, (layout.position[i] + 1) / shape.ratio) : 0);
    }
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.attend(stream, p); },
                      .outputs =
                          [=] {
                            const std::vector<bf16> o = memory->read(p.o, count);
                            return std::vector{bf16_output("o", o, rows.size(), Closeness::probabilities),
                                               q8_consistency(*memory, p.q8, o, p.rows.num_rows)};
                          },
                      .bytes = rows_of(rows) * shape.head.heads * d * 5.0 + keys * d * 0.7,
                      .flops = keys * shape.head.heads * d * 4.0};
  };
  return out;
}

OpCase index_select_case(IndexShape shape) {
  const char* const kModes[] = {"", " produce", " restrict"};
  OpCase out{.op = "index_select",
             .shape = text_of(shape.head) + " ratio " + std::to_string(shape.ratio) + " top " + std::to_string(shape.top_k) + " from " +
                      std::to_string(shape.first_position) + kModes[static_cast<int>(shape.mode)] +
                      (shape.has_uneven_scales ? " uneven" : ""),
             .sum_length = shape.head.head_dim,
             .max_rows = most_rows(shape.first_position),
             .prepare = {}};
  out.prepare = [=](Device& device, std::span<const std::int32_t> rows) {
    auto memory = std::make_shared<OpMemory>(device);
    const std::int32_t di = shape.head.head_dim;
    const std::int32_t rows_per_block = kBlockPositions / shape.ratio;
    const Layout layout = make_layout(rows, shape.first_position);
    std::vector<std::uint8_t> keys = index_key_store(di, rows_per_block);
    if (shape.has_uneven_scales) {
      make_uneven(keys, di, rows_per_block);
    }
    std::vector<bf16> q;
    for (const std::int32_t v : random_integers(1, rows, shape.head.heads * di, -6, 6)) {
      q.push_back(to_bf16(static_cast<float>(v)));
    }
    std::vector<bf16> head_weight;
    for (const std::int32_t v : random_integers(2, rows, shape.head.heads, -4, 8)) {
      head_weight.push_back(to_bf16(static_cast<float>(v)));
    }
    IndexSelectParams p{.rows = put_rows(*memory, layout),
                        .chunks = put_chunks(*memory, layout),
                        .heads = shape.head.heads,
                        .index_dim = di,
                        .rope_dim = shape.head.rope_dim,
                        .ratio = shape.ratio,
                        .rows_per_block = rows_per_block,
                        .top_k = shape.top_k,
                        .q = memory->put(q),
                        .head_weight = memory->put(head_weight),
                        .rope = put_rope(*memory, std::vector<std::int32_t>(rows.size(), 0), shape.head.rope_dim),  // no rotation
                        .keys = memory->put(keys),
                        .list = memory->room<std::int32_t>(rows.size() * static_cast<std::size_t>(shape.top_k)),
                        .candidate_mode = shape.mode,
                        .candidate_block_size = shape.block_size,
                        .candidate_top_blocks = shape.top_blocks};
    const std::size_t num_candidates = rows.size() * static_cast<std::size_t>(shape.top_blocks);
    double scored = 0;
    std::vector<std::int32_t> candidates;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int32_t visible = (layout.position[i] + 1) / shape.ratio;
      if (shape.mode == CandidateMode::restrict) {
        const std::vector<std::int32_t> chosen =
            random_list(rows[i], (visible + shape.block_size - 1) / shape.block_size, shape.top_blocks);
        candidates.insert(candidates.end(), chosen.begin(), chosen.end());
      }
      scored += shape.mode == CandidateMode::restrict ? std::min(visible, shape.block_size * shape.top_blocks) : visible;
    }
    if (shape.mode == CandidateMode::produce) {
      p.candidates = memory->room<std::int32_t>(num_candidates);
    } else if (shape.mode == CandidateMode::restrict) {
      p.candidates = memory->put(candidates);
    }
    const auto outputs = [=] {
      std::vector<OpOutput> all{exact_output("list", memory->read(p.list, rows.size() * static_cast<std::size_t>(p.top_k)), rows.size())};
      if (shape.mode == CandidateMode::produce) {
        all.push_back(exact_output("candidates", memory->read(p.candidates, num_candidates), rows.size()));
      }
      return all;
    };
    return PreparedOp{.memory = memory,
                      .run = [p](Ops& ops, Stream& stream) { ops.index_select(stream, p); },
                      .outputs = outputs,
                      .bytes = rows_of(rows) * shape.head.heads * di * 2.0 + scored * index_key_bytes(di),
                      .flops = scored * 2.0 * shape.head.heads * di};
  };
  return out;
}

}  // namespace deepinfer::test
