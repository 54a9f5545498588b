#include "engine/rank_agreement.h"

#include <cstddef>
#include <span>

#include "base/check.h"

namespace deepinfer::engine {

StepReport agree(comm::Collective& ranks, const StepReport& mine) {
  StepReport out = mine;
  comm::broadcast(ranks, std::as_writable_bytes(std::span(&out, 1)));
  check(out.num_requests == mine.num_requests && out.num_rows == mine.num_rows && out.num_tokens == mine.num_tokens &&
            out.drafted == mine.drafted,
        "every rank took the same step");
  return out;
}

}  // namespace deepinfer::engine
