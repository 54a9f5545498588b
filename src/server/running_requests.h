// Who is being answered right now: to end a request by its id, and to bound the requests of one key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace deepinfer::server {

/// Any thread. Must outlive its entries.
class RunningRequests {
 public:
  /// 0: no bound.
  explicit RunningRequests(std::int32_t max_per_owner = 0) : max_per_owner_(max_per_owner) {}

  /// A request while it runs; its names are forgotten with it.
  class Entry {
   public:
    Entry(RunningRequests& all, std::string owner, std::function<void()> abort);
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry();

    /// Another id under which the request is found.
    void add_name(const std::string& id);

   private:
    friend class RunningRequests;
    RunningRequests& all_;
    std::string owner_;
    std::function<void()> abort_;
    std::vector<std::string> names_;
  };

  /// `abort` ends the request; called from any thread, must not block. Null when the owner has too many already.
  [[nodiscard]] std::unique_ptr<Entry> begin(std::string owner, std::function<void()> abort);
  /// Aborts every request of that id, of `owner` only unless it is null; the number of them.
  std::size_t abort(const std::string& id, const std::string* owner = nullptr);

 private:
  void end(const Entry& entry);

  const std::int32_t max_per_owner_;
  std::mutex mutex_;
  std::unordered_multimap<std::string, const Entry*> by_name_;
  std::map<std::string, std::int32_t, std::less<>> per_owner_;
};

}  // namespace deepinfer::server
