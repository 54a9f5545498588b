#include "server/response_store.h"

#include <iterator>
#include <utility>

namespace deepinfer::server {
namespace {

/// What a list node and a map entry cost beside their texts.
constexpr std::size_t kOverheadBytes = 256;

}  // namespace

void ResponseStore::keep(std::string id, StoredResponse response) {
  const std::size_t bytes = kOverheadBytes + response.body.size() + response.items.size();
  const std::scoped_lock lock(mutex_);
  if (bytes > limits_.max_bytes || limits_.max_responses == 0 || by_id_.contains(id)) {
    return;
  }
  while (!responses_.empty() && (responses_.size() >= limits_.max_responses || num_bytes_ + bytes > limits_.max_bytes)) {
    forget(std::prev(responses_.end()));
  }
  responses_.push_front({.id = id, .response = std::make_shared<const StoredResponse>(std::move(response)), .bytes = bytes});
  by_id_.emplace(std::move(id), responses_.begin());
  num_bytes_ += bytes;
}

void ResponseStore::forget(Responses::iterator kept) {
  by_id_.erase(kept->id);
  num_bytes_ -= kept->bytes;
  responses_.erase(kept);
}

std::shared_ptr<const StoredResponse> ResponseStore::find(std::string_view owner, const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->response->owner != owner) {
    return nullptr;
  }
  responses_.splice(responses_.begin(), responses_, found->second);
  return found->second->response;
}

bool ResponseStore::erase(std::string_view owner, const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->response->owner != owner) {
    return false;
  }
  forget(found->second);
  return true;
}

std::size_t ResponseStore::num_responses() const {
  const std::scoped_lock lock(mutex_);
  return responses_.size();
}

std::size_t ResponseStore::num_bytes() const {
  const std::scoped_lock lock(mutex_);
  return num_bytes_;
}

}  // namespace deepinfer::server
