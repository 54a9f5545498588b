#include "server/running_requests.h"

#include <iterator>
#include <utility>

namespace deepinfer::server {

RunningRequests::Entry::Entry(RunningRequests& all, std::string owner, std::function<void()> abort)
    : all_(all), owner_(std::move(owner)), abort_(std::move(abort)) {}

RunningRequests::Entry::~Entry() { all_.end(*this); }

void RunningRequests::Entry::add_name(const std::string& id) {
  const std::scoped_lock lock(all_.mutex_);
  all_.by_name_.emplace(id, this);
  names_.push_back(id);
}

std::unique_ptr<RunningRequests::Entry> RunningRequests::begin(std::string owner, std::function<void()> abort) {
  {
    const std::scoped_lock lock(mutex_);
    std::int32_t& count = per_owner_[owner];
    if (max_per_owner_ > 0 && count >= max_per_owner_) {
      return nullptr;
    }
    ++count;
  }
  return std::make_unique<Entry>(*this, std::move(owner), std::move(abort));
}

void RunningRequests::end(const Entry& entry) {
  const std::scoped_lock lock(mutex_);
  for (const std::string& name : entry.names_) {
    auto [named, last] = by_name_.equal_range(name);
    while (named != last) {
      named = named->second == &entry ? by_name_.erase(named) : std::next(named);
    }
  }
  const auto count = per_owner_.find(entry.owner_);
  if (count != per_owner_.end() && --count->second == 0) {
    per_owner_.erase(count);
  }
}

std::size_t RunningRequests::abort(const std::string& id, const std::string* owner) {
  const std::scoped_lock lock(mutex_);
  std::size_t num_aborted = 0;
  const auto [begin, end] = by_name_.equal_range(id);
  for (auto named = begin; named != end; ++named) {
    if (owner == nullptr || named->second->owner_ == *owner) {
      named->second->abort_();
      ++num_aborted;
    }
  }
  return num_aborted;
}

}  // namespace deepinfer::server
