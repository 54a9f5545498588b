// A constraint that is being compiled, seen from the thread of its client: the pool's thread only leaves the result and wakes.
// Not here: what is compiled (constraint.h), what follows (reply.h).
#pragma once

#include <memory>
#include <optional>

#include "grammar/compile_pool.h"
#include "server/engine_stream.h"

namespace deepinfer::server {

class PendingConstraint {
 public:
  /// nullptr: too many constraints wait for the pool. `wake` is called when the result is there, on a thread of the pool.
  static std::unique_ptr<PendingConstraint> submit(grammar::CompilePool& pool, grammar::CompositeJob job, Wake wake);
  PendingConstraint(const PendingConstraint&) = delete;
  PendingConstraint& operator=(const PendingConstraint&) = delete;
  /// Calls the compile off; the wake is not called any more once this returns.
  ~PendingConstraint();

  /// The result, once; nullopt while there is none.
  [[nodiscard]] std::optional<grammar::CompileResult> take();

 private:
  struct Inbox;
  PendingConstraint() = default;

  std::shared_ptr<Inbox> inbox_;
  grammar::CompileTicket ticket_;
};

}  // namespace deepinfer::server
