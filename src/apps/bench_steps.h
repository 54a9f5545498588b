// deepinfer bench ops | decode | prefill: single steps of a model, each figure beside what this machine can do at most.
#pragma once

#include "apps/command.h"

namespace deepinfer::apps {

void add_bench_steps(CLI::App& bench, Action& action);

}  // namespace deepinfer::apps
