#pragma once
// What a rank keeps of its stages in a checkpoint, and what it takes from one. Tensors go by the names of their
// parameters, so that another plan of the same model finds them whatever its stages are.

#include <map>
#include <string>
#include <vector>

#include "runtime/executor/stage_state.h"
#include "wire/checkpoint.h"

namespace graphpipe::runtime {

/// A file of a checkpoint and its tensors.
struct Shard {
  /// Empty: parameters that another shard's file has already. They are compared with it (check_copies.h), not written.
  std::string file;
  std::vector<NamedTensor> tensors;
  /// Whose they are. Only what no step changes may be read later.
  const StageState* state = nullptr;
};

/// The files that hold this state: of replica 0 its parameters, running statistics and optimizer state, but what shared
/// weights have in an earlier stage; of other replicas their running statistics, which are their own; and the other
/// copies of trained parameters. On the CPU, and there the state itself: a step changes it.
std::vector<Shard> shards_of(const PlanTable& plan, const StageState& state, const Device& device);
/// What check_copies() reads of the parameters among them.
std::vector<std::byte> digest_shards(const PlanTable& plan, const std::vector<Shard>& shards);

/// Copies of shards that stay as they are while training goes on. Their memory is used again.
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

  /// Gives the state what the checkpoint has for it. `same_plan`: the running statistics of each replica are those of
  /// the replica; under another plan all have those of the first. Throws RunError (kMalformedFile) where a parameter is
  /// missing or has another type or shape, or only a part of its optimizer state is there.
  void restore(StageState& state, bool same_plan, const Device& device) const;

 private:
  void restore_weight(StageState& state, size_t index, bool same_plan, const Device& device) const;

  std::string folder_;
  Safetensors weights_, optimizer_;
  std::map<std::string, Safetensors> buffers_;  // by file
};

}  // namespace graphpipe::runtime
