#include "server/pending_constraint.h"

#include <mutex>
#include <utility>

namespace deepinfer::server {

struct PendingConstraint::Inbox {
  std::mutex mutex;
  std::optional<grammar::CompileResult> result;
  Wake wake;  ///< empty: nobody waits any more

  void put(grammar::CompileResult&& compiled) {
    const std::scoped_lock lock(mutex);
    if (wake) {
      result = std::move(compiled);
      wake();
    }
  }
};

std::unique_ptr<PendingConstraint> PendingConstraint::submit(grammar::CompilePool& pool, grammar::CompositeJob job, Wake wake) {
  auto pending = std::unique_ptr<PendingConstraint>(new PendingConstraint());
  pending->inbox_ = std::make_shared<Inbox>();
  pending->inbox_->wake = std::move(wake);
  auto ticket =
      pool.submit(std::move(job), [inbox = pending->inbox_](grammar::CompileResult&& compiled) { inbox->put(std::move(compiled)); });
  if (!ticket) {
    return nullptr;
  }
  pending->ticket_ = *std::move(ticket);
  return pending;
}

PendingConstraint::~PendingConstraint() {
  const std::scoped_lock lock(inbox_->mutex);
  inbox_->wake = nullptr;
}

std::optional<grammar::CompileResult> PendingConstraint::take() {
  const std::scoped_lock lock(inbox_->mutex);
  return std::exchange(inbox_->result, std::nullopt);
}

}  // namespace deepinfer::server
