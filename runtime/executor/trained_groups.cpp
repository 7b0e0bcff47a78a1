#include "runtime/executor/trained_groups.h"

#include <algorithm>
#include <set>

#include "runtime/error.h"
#include "support/name_pattern.h"

namespace graphpipe::runtime {

std::string trained_groups(const wire::OptimizerOptions& options, std::span<const StageState> states) {
  std::string trained;
  for (const wire::ParameterGroup& group : options.groups) {
    const auto is_named = [&](const StageState& state) {
      return std::ranges::any_of(state.trainable,
                                 [&](size_t index) { return matches(group.pattern, state.entry->params[index].name); });
    };
    trained += std::ranges::any_of(states, is_named) ? '1' : '0';
  }
  return trained;
}

void check_trained_groups(const wire::OptimizerOptions& options, std::span<const std::string> of_ranks) {
  for (size_t i = 0; i < options.groups.size(); ++i) {
    const auto is_trained = [&](const std::string& rank) { return i < rank.size() && rank[i] == '1'; };
    if (std::ranges::none_of(of_ranks, is_trained))
      fail(Code::kUsage,
           text("--group ", quoted(ModelText(options.groups[i].pattern)), " names no parameter that is trained"),
           "leave it out, or compile the model without freezing them");
  }
}

void check_trained_groups(const wire::OptimizerOptions& options, std::span<const StageState> states,
                          const DeviceProgram& program, Store* store) {
  // Ranks that were started by hand may have other flags: what they tell each other must not depend on these.
  const auto key = [](int32_t rank) { return text("groups of ", rank); };
  std::vector<std::string> of_ranks{trained_groups(options, states)};
  if (store != nullptr && program.device != 0) return store->set(key(program.device), of_ranks.front());
  std::set<int32_t> others;
  for (const PlacementRow& row : program.plan->placement) others.insert(row.device);
  others.erase(program.device);
  for (const int32_t rank : others) {
    of_ranks.push_back(store->get(key(rank)));
    if (of_ranks.back().size() != options.groups.size())
      fail(Code::kUsage, text("rank 0 and rank ", rank, " have not equally many --group"),
           "start all ranks with the same flags");
  }
  check_trained_groups(options, of_ranks);
}

}  // namespace graphpipe::runtime
