#pragma once
// A plan as the user saves it: what was decided, for which model, under which options. Read and written by
// files/plan.h. Whoever uses one rebuilds the graph from the model with these options, then checks the assignment.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/assignment.h"
#include "ir/schedule.h"
#include "support/text.h"

namespace graphpipe::ir {

/// Which statistics BatchNorm uses: the batch's, the running ones, what the model file says (of the batch where it
/// trains), or those of each micro-batch, as GPipe does.
enum class BatchNormMode : uint8_t { kTrain, kEval, kFile, kMicroBatch };
/// "train", "eval", "file", "micro-batch".
std::string_view batch_norm_name(BatchNormMode mode);
std::optional<BatchNormMode> batch_norm_of_name(std::string_view name);

/// A symbolic dimension of the model other than the batch, and its size.
struct SymbolBinding {
  ModelText symbol;
  int64_t size = 1;
  bool operator==(const SymbolBinding&) const = default;
};

struct Plan {
  /// The model file: absolute, or relative to the plan's folder. And the second folder that its data may lie in.
  ModelText model, trusted_root;
  /// The measured profile that it was priced with, named like the model; empty for analytic costs.
  ModelText profile;
  /// SHA-256 as 64 lower-case hex digits of what the plan was made from; empty where there was no such file.
  std::string model_digest, cluster_digest, profile_digest;
  /// As on the command line: "cross_entropy:output,label", "output:NAME".
  ModelText loss;
  /// A name of wire/optimizers.h.
  std::string optimizer = "sgd";
  /// Samples of one step.
  Samples batch{1};
  BatchNormMode batch_norm = BatchNormMode::kTrain;
  /// The samples that a loss compares with each other: all of the batch, or those of each micro-batch.
  SampleScope contrastive = SampleScope::kBatch;
  Execution execution = Execution::kGraph;
  bool dropout = false;
  uint64_t seed = 0;
  /// CPU threads of each stage: other counts give other bits.
  int threads = 1;
  std::string planner, policy;
  /// The machines that it was made for.
  Cluster cluster;
  std::vector<SymbolBinding> bindings;
  /// The user's decisions about parameters, in the lines of a --parameters file; --freeze adds lines at its end.
  ModelText parameter_rules;
  /// The decision. Needs: every stage has at least one node.
  Assignment assignment;
  /// For people: what each node is called. Either empty or one per node.
  IdMap<PlanNodeId, ModelText> labels;
  /// Absent: the policy makes it.
  std::optional<Schedule> schedule;
  bool operator==(const Plan&) const = default;
};

}  // namespace graphpipe::ir
