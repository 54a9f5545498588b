// TensorView: a typed, shaped, non-owning view of contiguous memory. Buffer: owned, aligned memory of one device.
// Parses as C++20: device code includes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>

#include "tensor/dtype.h"

namespace deepinfer {

/// Up to four extents, row-major and contiguous. The last extent is the fastest.
class Shape {
 public:
  static constexpr std::size_t kMaxRank = 4;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> extents);

  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] std::int64_t operator[](std::size_t axis) const { return extents_[axis]; }
  [[nodiscard]] std::int64_t num_elements() const;
  /// Adds an axis at the end; false when the rank limit is reached.
  [[nodiscard]] bool append(std::int64_t extent);
  /// "[24, 20480]"
  [[nodiscard]] std::string to_string() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  std::array<std::int64_t, kMaxRank> extents_{};
  std::size_t rank_ = 0;
};

/// Read-only elements somewhere in memory that outlives the view.
struct TensorView {
  const std::byte* data = nullptr;
  DType dtype = DType::u8;
  Shape shape;

  [[nodiscard]] std::size_t size_bytes() const { return static_cast<std::size_t>(shape.num_elements()) * size_of(dtype); }
  /// The elements as T; the caller has checked dtype and alignment.
  template <class T>
  [[nodiscard]] const T* as() const {
    return reinterpret_cast<const T*>(data);
  }
};

/// Memory that belongs to one device. Moves, never copies; released by the function it was made with.
class Buffer {
 public:
  using Release = void (*)(void* data, std::size_t size_bytes);

  Buffer() = default;
  Buffer(void* data, std::size_t size_bytes, Release release) : data_(data, Releaser{release, size_bytes}) {}

  [[nodiscard]] std::byte* data() const { return static_cast<std::byte*>(data_.get()); }
  [[nodiscard]] std::size_t size_bytes() const { return data_ ? data_.get_deleter().size_bytes : 0; }
  template <class T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_.get());
  }

 private:
  struct Releaser {
    Release release = nullptr;
    std::size_t size_bytes = 0;
    void operator()(void* data) const { release(data, size_bytes); }
  };
  std::unique_ptr<void, Releaser> data_{nullptr, Releaser{}};
};

}  // namespace deepinfer
