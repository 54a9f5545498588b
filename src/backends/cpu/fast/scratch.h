// Bump memory of one worker: taken while a task runs, all of it given back when the next task starts.
// Grows until it has seen the largest task; nothing is allocated after that.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <vector>

namespace deepinfer::cpu {

class Scratch {
 public:
  /// `count` uninitialised elements, aligned to 64 bytes, valid until reset().
  template <class T>
  [[nodiscard]] T* take(std::int64_t count) {
    return static_cast<T*>(take_bytes(static_cast<std::size_t>(count) * sizeof(T)));
  }

  /// Gives everything back. Memory that did not fit into one piece is replaced by one piece that holds all of it.
  void reset() {
    if (pieces_.size() > 1) {
      pieces_.clear();
      add_piece(total_bytes_);
    }
    used_bytes_ = 0;
    total_bytes_ = 0;
  }

 private:
  static constexpr std::size_t kAlignment = 64;
  static constexpr std::size_t kSmallestPiece = std::size_t{1} << 16;

  struct Piece {
    std::unique_ptr<std::byte, decltype(&std::free)> memory;
    std::size_t size_bytes;
  };

  void add_piece(std::size_t size_bytes) {
    void* memory = std::aligned_alloc(kAlignment, size_bytes);
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    pieces_.push_back({{static_cast<std::byte*>(memory), &std::free}, size_bytes});
    used_bytes_ = 0;
  }

  void* take_bytes(std::size_t size_bytes) {
    const std::size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (pieces_.empty() || used_bytes_ + rounded > pieces_.back().size_bytes) {
      add_piece(rounded > kSmallestPiece ? rounded : kSmallestPiece);
    }
    std::byte* out = pieces_.back().memory.get() + used_bytes_;
    used_bytes_ += rounded;
    total_bytes_ += rounded;
    return out;
  }

  std::vector<Piece> pieces_;
  std::size_t used_bytes_ = 0;   ///< of the last piece
  std::size_t total_bytes_ = 0;  ///< of all pieces since reset()
};

}  // namespace deepinfer::cpu
