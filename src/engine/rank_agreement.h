// Several ranks that run the same requests must choose the same drafts at every step, though each has its own clock. Everything else that
// the choice is made of is equal on all of them (results do not depend on the number of ranks), and DraftPolicy is a function of what it
// was told, so rank 0's times are everybody's. Not here: ranks with requests of their own.
#pragma once

#include "comm/collective.h"
#include "engine/draft_policy.h"

namespace deepinfer::engine {

/// `mine` with the times of rank 0, for Speculation::record_step. Called by every rank behind every step that is reported.
[[nodiscard]] StepReport agree(comm::Collective& ranks, const StepReport& mine);

}  // namespace deepinfer::engine
