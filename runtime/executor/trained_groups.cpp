#include "runtime/executor/trained_groups.h"

#include <algorithm>
#include <set>

#include "runtime/error.h"
#include "runtime/optimizers/update_settings.h"

namespace graphpipe::runtime {
namespace {

constexpr char kNone = '0', kNamed = '1', kTrained = '2';

char found_of(const wire::ParameterGroup& group, const StageState& state) {
  char found = kNone;
  for (size_t i = 0; i < state.entry->params.size(); ++i) {
    const ParamRow& row = state.entry->params[i];
    if (!is_in_group(group.pattern, row.name, row.aliases)) continue;
    const bool is_trained = std::ranges::find(state.trainable, i) != state.trainable.end();
    found = std::max(found, is_trained ? kTrained : kNamed);
  }
  return found;
}

}  // namespace

std::string trained_groups(const wire::OptimizerOptions& options, std::span<const StageState> states) {
  std::string all;
  for (const wire::ParameterGroup& group : options.groups) {
    char found = kNone;
    for (const StageState& state : states) found = std::max(found, found_of(group, state));
    all += found;
  }
  return all;
}

void check_trained_groups(const wire::OptimizerOptions& options, std::span<const std::string> of_ranks) {
  for (size_t i = 0; i < options.groups.size(); ++i) {
    char found = kNone;
    for (const std::string& rank : of_ranks) found = i < rank.size() ? std::max(found, rank[i]) : found;
    const std::string group = text("--group ", quoted(ModelText(options.groups[i].pattern)));
    if (found == kNone)
      fail(Code::kUsage, text(group, " names no parameter of the model"),
           "`graphpipe inspect` lists the parameters; * stands for any characters, ? for one");
    if (found == kNamed)
      fail(Code::kUsage, text(group, " names no parameter that is trained"),
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
