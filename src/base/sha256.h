// SHA-256 (FIPS 180-4): names for cached states and tables. Not for secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace deepinfer {

class Sha256 {
 public:
  void update(std::span<const std::byte> bytes);
  /// Lower-case hexadecimal digest of everything given so far. Ends the object's use.
  [[nodiscard]] std::string finish();

 private:
  void compress(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};
  std::array<std::uint8_t, 64> pending_{};
  std::uint64_t num_bytes_ = 0;
};

[[nodiscard]] std::string sha256(std::span<const std::byte> bytes);

}  // namespace deepinfer
