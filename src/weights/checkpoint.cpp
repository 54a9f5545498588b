#include "weights/checkpoint.h"

#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "weights/mapped_file.h"
#include "weights/problems.h"
#include "weights/safetensors.h"
#include "weights/shard_index.h"

namespace deepinfer::weights {

/// What the views point into.
struct Checkpoint::Memory {
  std::vector<MappedFile> maps;
  std::vector<std::vector<std::byte>> aligned_copies;
};

Checkpoint::Checkpoint() : memory_(std::make_unique<Memory>()) {}
Checkpoint::~Checkpoint() = default;

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

/// Builds a Checkpoint step by step and collects what is wrong on the way.
class CheckpointOpener {
 public:
  explicit CheckpointOpener(const std::filesystem::path& directory) : out_(new Checkpoint) { out_->directory_ = directory; }

  Result<std::shared_ptr<const Checkpoint>> open() {
    index_ = read_shard_index(out_->directory_, problems_);
    for (const std::string& shard : index_.shards) {
      is_shard_read_.push_back(add_shard(shard));
    }
    check_against_index();
    for (const StoredTensor& tensor : out_->tensors_) {
      out_->by_name_.emplace(tensor.name, &tensor.view);
      out_->payload_bytes_ += tensor.view.size_bytes();
    }
    if (!problems_.empty()) {
      return problems_.to_failure(ErrorKind::corrupt, "the checkpoint " + out_->directory_.string());
    }
    return std::shared_ptr<const Checkpoint>(std::move(out_));
  }

 private:
  /// False when nothing is known about the shard's tensors.
  bool add_shard(const std::string& file) {
    Result<MappedFile> map = MappedFile::open(out_->directory_ / file);
    if (!map) {
      problems_.add(map.error().message + (map.error().kind == ErrorKind::not_found ? ", fetch it again" : ""));
      out_->shards_.push_back({.name = file});
      return false;
    }
    const std::span<const std::byte> bytes = map->bytes();
    const auto shard = static_cast<std::int32_t>(out_->shards_.size());
    out_->shards_.push_back({.name = file, .size_bytes = bytes.size()});
    const std::optional<std::string_view> header = header_of(bytes, file);
    if (!header) {
      return false;
    }
    const std::size_t data_begin = kLengthPrefixBytes + header->size();
    const std::size_t num_problems = problems_.count();
    for (HeaderEntry& entry : parse_header(*header, bytes.size() - data_begin, file, problems_)) {
      add_tensor(std::move(entry.tensor), bytes.data() + data_begin + entry.offset, shard);
    }
    out_->memory_->maps.push_back(std::move(*map));
    return problems_.count() == num_problems;
  }

  std::optional<std::string_view> header_of(std::span<const std::byte> bytes, const std::string& file) {
    std::uint64_t length = 0;
    if (bytes.size() < kLengthPrefixBytes) {
      problems_.add(file + ": " + std::to_string(bytes.size()) + " bytes are no safetensors file, fetch it again");
      return std::nullopt;
    }
    std::memcpy(&length, bytes.data(), sizeof(length));
    if (length >= kHeaderLimitBytes) {
      problems_.add(file + ": a header of " + std::to_string(length) + " bytes, the limit is " + std::to_string(kHeaderLimitBytes) +
                    ": this is no safetensors file");
      return std::nullopt;
    }
    if (length > bytes.size() - kLengthPrefixBytes) {
      problems_.add(file + ": the header needs " + std::to_string(length) + " bytes, but the file has only " +
                    std::to_string(bytes.size()) + ": it is truncated, fetch it again");
      return std::nullopt;
    }
    return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kLengthPrefixBytes, length);
  }

  void add_tensor(TensorDescription tensor, const std::byte* data, std::int32_t shard) {
    const std::string name(without_prefix(tensor.name));
    const auto [first, is_new] = shard_and_prefix_.try_emplace(name, Origin{shard, name != tensor.name});
    if (!is_new) {
      const Origin& other = first->second;
      const std::string& here = shard_name(shard);
      problems_.add(other.has_prefix == (name != tensor.name)
                        ? quote(name) + " is in " + shard_name(other.shard) + " and in " + here + ": keep one"
                        : quote(name) + " is there both with and without \"model.\" (" + shard_name(other.shard) + ", " + here +
                              "): keep one");
      return;
    }
    const std::size_t item_bytes = size_of(tensor.dtype);
    if (reinterpret_cast<std::uintptr_t>(data) % item_bytes != 0) {
      data = aligned_copy({data, tensor.size_bytes()});
    }
    out_->tensors_.push_back({.name = name, .view = {.data = data, .dtype = tensor.dtype, .shape = tensor.shape}, .shard = shard});
  }

  const std::byte* aligned_copy(std::span<const std::byte> bytes) {
    auto& copies = out_->memory_->aligned_copies;
    copies.emplace_back(bytes.begin(), bytes.end());
    return copies.back().data();
  }

  /// Tensors that the index does not know are left out, as the official loader does; the other differences are problems.
  void check_against_index() {
    if (!index_.lists_tensors) {
      return;
    }
    for (const auto& [name, wanted] : index_.shard_of) {
      const auto found = shard_and_prefix_.find(name);
      if (found == shard_and_prefix_.end()) {
        if (is_shard_read_[wanted]) {
          problems_.add(quote(name) + " is not in " + index_.shards[wanted] + ", where the index says it is: fetch index and shard again");
        }
      } else if (static_cast<std::size_t>(found->second.shard) != wanted) {
        problems_.add(quote(name) + " is in " + shard_name(found->second.shard) + ", the index says " + index_.shards[wanted] +
                      ": fetch the index again");
      }
    }
    const std::size_t num_unlisted =
        std::erase_if(out_->tensors_, [this](const StoredTensor& tensor) { return !index_.shard_of.contains(tensor.name); });
    if (num_unlisted > 0) {
      out_->warnings_.push_back("the index does not list every tensor of the shards; ignored: " + std::to_string(num_unlisted));
    }
  }

  const std::string& shard_name(std::int32_t shard) const { return out_->shards_[static_cast<std::size_t>(shard)].name; }

  struct Origin {
    std::int32_t shard = 0;
    bool has_prefix = false;
  };

  std::unique_ptr<Checkpoint> out_;
  Problems problems_;
  ShardIndex index_;
  std::vector<bool> is_shard_read_;
  std::unordered_map<std::string, Origin> shard_and_prefix_;
};

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::filesystem::path& directory) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return fail(ErrorKind::not_found, directory.string() + " is not a directory: give the directory of a checkpoint");
  }
  return CheckpointOpener(directory).open();
}

}  // namespace deepinfer::weights
