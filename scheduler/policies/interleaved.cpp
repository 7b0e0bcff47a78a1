// Schedules with several chunks of a chain on each rank: interleaved 1F1B (Megatron-LM), its zero-bubble form, and
// looped breadth-first. Micro-batches go through a rank's chunks in groups: a group's forwards on the first chunk, then
// on the second, and so on; backwards the other way round.

#include <algorithm>

#include "scheduler/policies/chunks.h"
#include "scheduler/policies/list_rule.h"

namespace graphpipe::scheduler {
namespace {

/// All forwards of a rank in order, or all backwards.
std::vector<Action> in_groups(const StageGraph& graph, std::vector<StageId> stages, int64_t micro_batches,
                              int64_t group, ActionOp op) {
  if (op == ActionOp::kBackward) std::reverse(stages.begin(), stages.end());
  std::vector<Action> actions;
  for (int64_t first = 0; first < micro_batches; first += group)
    for (const StageId stage : stages)
      for (int64_t index = first; index < std::min(first + group, micro_batches); ++index)
        actions.push_back(chunk_action(graph, op, stage, index));
  return actions;
}

/// Micro-batches per group: the request's, else what makes as many equal groups as P micro-batches each allow.
Result<int64_t> group_size(const PolicyRequest& request, const Chunks& chunks, std::string_view policy) {
  const int64_t ranks = chunks.ranks, count = chunks.micro_batches;
  const int64_t rounds = std::max<int64_t>(1, count / ranks);
  const int64_t group = request.choices.group > 0 ? request.choices.group : count / rounds;
  if (request.choices.group == 0 && count % rounds != 0)
    return Diagnostic{.code = Code::kBadPlan,
                      .message = text(policy, ": ", count, " micro-batches do not make ", rounds, " equal groups"),
                      .hint = text("use a multiple of ", ranks, " micro-batches, or choose the group size")};
  if (count > group && group < ranks)
    return Diagnostic{.code = Code::kBadPlan,
                      .message = text(policy, ": groups of ", group, " micro-batches on ", ranks, " devices"),
                      .hint = "use groups of at least as many micro-batches as devices"};
  const int64_t rest = count % group;
  if (count > group && rest != 0 && rest < ranks)
    return Diagnostic{.code = Code::kBadPlan,
                      .message = text(policy, ": the last group has ", rest, " micro-batches on ", ranks, " devices"),
                      .hint = "let the last group have at least as many micro-batches as devices"};
  return group;
}

/// `warm_up` and `lag` give the two numbers of a rank.
template <typename WarmUp, typename Lag>
Result<Schedule> order_in_groups(const PolicyRequest& request, std::string_view policy, bool split, WarmUp warm_up,
                                 Lag lag) {
  GP_TRY(const Chunks chunks, chunks_of(request.graph, ir::StageShape::kLoop, policy));
  GP_TRY(const int64_t group, group_size(request, chunks, policy));
  std::vector<std::vector<Action>> lists;
  for (int rank = 0; rank < chunks.ranks; ++rank) {
    const auto& stages = chunks.stages[static_cast<size_t>(rank)];
    const auto sequence = [&](ActionOp op) {
      return in_groups(request.graph, stages, chunks.micro_batches, group, op);
    };
    const int64_t before = (chunks.chunks - 1) * std::min(group, chunks.micro_batches);
    // The rules count the forwards before the first {F, B} pair; ours counts that forward too.
    lists.push_back(
        action_list(sequence(ActionOp::kForward), sequence(ActionOp::kBackward),
                    {.warm_up = before + warm_up(chunks.ranks, rank) + 1, .split = split, .weight_lag = lag(rank)}));
  }
  return schedule_of_ranks(chunks, std::move(lists), policy);
}

}  // namespace

Result<Schedule> order_interleaved(const PolicyRequest& request) {
  return order_in_groups(
      request, "interleaved", false, [](int ranks, int rank) { return 2 * (ranks - 1 - rank); }, [](int) { return 0; });
}

Result<Schedule> order_interleaved_zb(const PolicyRequest& request) {
  return order_in_groups(
      request, "interleaved-zb", true, [](int ranks, int rank) { return ranks - 1 - rank; },
      [](int rank) { return rank; });
}

Result<Schedule> order_looped_bfs(const PolicyRequest& request) {
  GP_TRY(const Chunks chunks, chunks_of(request.graph, ir::StageShape::kLoop, "looped-bfs"));
  std::vector<std::vector<Action>> lists;
  for (const std::vector<StageId>& stages : chunks.stages) {
    std::vector<Action>& list = lists.emplace_back();
    for (const StageId stage : stages)
      for (int64_t index = 0; index < chunks.micro_batches; ++index)
        list.push_back(chunk_action(request.graph, ActionOp::kForward, stage, index));
    for (auto stage = stages.rbegin(); stage != stages.rend(); ++stage)
      for (int64_t index = chunks.micro_batches; index-- > 0;)
        list.push_back(chunk_action(request.graph, ActionOp::kBackward, *stage, index));
  }
  return schedule_of_ranks(chunks, std::move(lists), "looped-bfs");
}

}  // namespace graphpipe::scheduler
