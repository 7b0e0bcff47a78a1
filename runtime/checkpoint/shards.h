#pragma once
// What a rank saves of its stages in a checkpoint, and what it restores from one. Tensors are stored under the names of
// their parameters, so that another plan of the same model finds them whatever its stages are.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "runtime/executor/stage_state.h"
#include "wire/checkpoint.h"

namespace graphpipe::runtime {

/// One file of a checkpoint and its tensors.
struct Shard {
  /// Empty: parameters that another shard's file already holds. They are compared with it (check_copies.h), not
  /// written.
  std::string file;
  std::vector<NamedTensor> tensors;
  /// The state they belong to. Only what no step changes may be read later.
  const StageState* state = nullptr;
  /// Whether it is a file of replica 0's parameters and running statistics, or of a replica's own running statistics.
  bool holds_weights() const, holds_buffers() const;
  bool holds_model() const { return holds_weights() || holds_buffers(); }
};

/// The files that hold this state: for replica 0 its parameters, running statistics and optimizer state, except those
/// of shared weights that an earlier stage holds; for other replicas their own running statistics and, where they
/// divide the optimizer's state, their part of it; and the other copies of trained parameters. Tensors on the CPU, and
/// if the stage is there, the state itself: a step changes it.
std::vector<Shard> shards_of(const PlanTable& plan, const StageState& state, const Device& device);
/// The digests of the parameters among them, as check_copies() reads them.
std::vector<std::byte> digest_shards(const PlanTable& plan, const std::vector<Shard>& shards);

/// Copies of shards that do not change while training continues. Their memory is reused.
class ShardCopies {
 public:
  void take(const std::vector<Shard>& shards);
  const std::vector<Shard>& shards() const { return copies_; }

 private:
  std::vector<Shard> copies_;
};

/// The files of a checkpoint, mapped.
class CheckpointTensors {
 public:
  /// Throws RunError (kMalformedFile).
  CheckpointTensors(const std::string& folder, const wire::CheckpointRecord& record);

  /// Restores the state from the checkpoint. `same_plan`: each replica gets its own running statistics; under another
  /// plan all get those of the first. Throws RunError (kMalformedFile) if a parameter is missing or has another type or
  /// shape, if only part of its optimizer state is present, if the checkpoint has none at all though its optimizer
  /// always has, or if `same_plan` and it has none where others have. Under another plan, which may train what the
  /// first one froze, stderr has a note of the latter.
  void restore(StageState& state, bool same_plan, const Device& device) const;

 private:
  void restore_weight(StageState& state, size_t index, bool same_plan, const Device& device) const;
  void check_states(const StageState& state, bool same_plan) const;
  /// By the name of the whole; undefined if there is none.
  at::Tensor optimizer_state(const std::string& name) const;
  at::Tensor joined_parts(const std::string& name, const std::map<int64_t, std::string>& parts) const;

  std::string folder_;
  Safetensors weights_, optimizer_;
  /// Of states that replicas divided, by the name of the whole: names of the parts, by their first element.
  std::map<std::string, std::map<int64_t, std::string>> parts_;
  /// Of states, whole or not: what stands before the name of a parameter.
  std::set<std::string> kinds_;
  /// A step that was not skipped leaves some state: the optimizer's, or gradients that wait for its update.
  bool must_have_state_;
  std::map<std::string, Safetensors> buffers_;  // by file
};

}  // namespace graphpipe::runtime
