#pragma once
// What a paced run needs to know of a plan: its schedule, how long each action takes, and what its messages and links
// are. `graphpipe run --pace` writes it, the runtime's graphpipe-pace reads it; it holds no path and no name. std only.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/action.h"
#include "wire/training.h"

namespace graphpipe::wire {

/// The file's name in the folder of a paced run.
inline constexpr const char* kPacePlanFile = "pace.txt";

struct PaceStage {
  int64_t micro_batch = 1;
  int32_t replicas = 1;
  ReplicaMode mode = ReplicaMode::kSplit;
  int32_t slots = 1;
  bool recompute = false;
  /// Gradients that its replicas sum, without those that it shares with other stages.
  int64_t gradient_bytes = 0;
  /// Seconds that adding a byte of them takes.
  double add_byte = 0;
  bool operator==(const PaceStage&) const = default;
};

/// A transfer: so many bytes of a sample, or of a message whatever its samples are.
struct PaceEdge {
  int32_t from = -1, to = -1;
  int64_t bytes = 0;
  bool of_sample = true;
  /// Tensors of as many bytes that come back; 0: no gradient.
  int32_t gradients = 0;
  bool operator==(const PaceEdge&) const = default;
};

struct PacePlace {
  int32_t stage = 0, replica = 0, rank = 0;
  bool operator==(const PacePlace&) const = default;
};

/// A weight with copies in several stages, ascending.
struct PaceGroup {
  int64_t bytes = 0;
  std::vector<int32_t> stages;
  bool operator==(const PaceGroup&) const = default;
};

/// The way from one rank to another: there is one where tensors travel. Ways with the same link wait for each other.
struct PaceLink {
  int32_t from = 0, to = 0;
  int32_t link = 0;
  double latency = 0;  // seconds
  double byte = 0;     // seconds for each
  bool operator==(const PaceLink&) const = default;
};

struct PaceAction {
  ActionRow row;
  /// How long it keeps its device busy.
  int64_t nanoseconds = 0;
  bool operator==(const PaceAction&) const = default;
};

struct PacePlan {
  /// 64 hexadecimal digits.
  std::string digest;
  int64_t batch = 1;
  /// All times are multiplied with it.
  double scale = 1;
  /// The part of their bytes that messages and gradients have; links take as long as with all.
  double share = 1;
  /// Of each step, before the first action.
  int64_t start_nanoseconds = 0;
  int32_t links = 0;
  std::vector<PaceStage> stages;
  std::vector<PaceEdge> edges;
  std::vector<PacePlace> places;
  std::vector<PaceGroup> groups;
  std::vector<PaceLink> ways;
  /// By rank.
  std::vector<std::vector<PaceAction>> programs;
  bool operator==(const PacePlan&) const = default;
};

std::string print_pace_plan(const PacePlan& plan);
/// None where the text is not what print_pace_plan wrote, names a stage, replica, slot, edge, rank or link that it does
/// not have, or has numbers that no plan has.
std::optional<PacePlan> parse_pace_plan(const std::string& text);

}  // namespace graphpipe::wire
