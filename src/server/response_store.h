// Finished responses of the Responses API: for GET and DELETE by id and for previous_response_id. Bounded; the longest unused response
// goes first. Not on disk.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/json.h"

namespace deepinfer::server {

struct ResponseStoreLimits {
  std::size_t max_responses = 1'000;
  std::size_t max_bytes = std::size_t{256} << 20;
};

/// Texts, not trees: a tree takes many times the memory of its text.
struct StoredResponse {
  std::string owner;  ///< who may see it
  std::string body;   ///< the response object, JSON
  std::string items;  ///< JSON array: the conversation so far, input and output items
};

/// Any thread. A response of another owner counts as absent.
class ResponseStore {
 public:
  explicit ResponseStore(ResponseStoreLimits limits = {}) : limits_(limits) {}

  /// One that is larger than the store alone is not kept.
  void keep(std::string id, StoredResponse response);
  [[nodiscard]] std::shared_ptr<const StoredResponse> find(std::string_view owner, const std::string& id);
  /// False when it was absent.
  bool erase(std::string_view owner, const std::string& id);

  [[nodiscard]] std::size_t num_responses() const;
  [[nodiscard]] std::size_t num_bytes() const;

 private:
  struct Kept {
    std::string id;
    std::shared_ptr<const StoredResponse> response;
    std::size_t bytes = 0;
  };
  using Responses = std::list<Kept>;

  void forget(Responses::iterator kept);

  const ResponseStoreLimits limits_;
  mutable std::mutex mutex_;
  Responses responses_;  // most recently used first
  std::unordered_map<std::string, Responses::iterator> by_id_;
  std::size_t num_bytes_ = 0;
};

}  // namespace deepinfer::server
