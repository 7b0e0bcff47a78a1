#pragma once
// The chain of tests/runtime/chain_plan.h as the scheduler's policies run it: micro-batches of one sample, with the
// actions that the compiler's own lowering adds.

#include <string>
#include <vector>

#include "tests/runtime/chain_plan.h"

namespace graphpipe::tests {

struct ScheduledChain {
  std::string policy;
  bool vertical_sync = false;
  /// Stages of the chain and samples of the batch; two replicas where the policy copies a whole model.
  int stages = 4;
  int samples = 8;
};

/// Fails the test where the policy refuses the chain.
runtime::test::ChainSchedule schedule_of(const ScheduledChain& chain);

struct PolicyCase {
  ScheduledChain chain;
  /// How weights and updates belong together, a word of tests/data/policy_references.txt.
  std::string mode;
};
/// All policies that train.
std::vector<PolicyCase> policy_cases();

}  // namespace graphpipe::tests
