#include "frontend/tied_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace graphpipe::frontend {
namespace {

using TiedNames = std::set<std::string>;

/// The groups that pairs of names make, by each of their names.
std::map<std::string, TiedNames> groups_of(const std::vector<std::pair<std::string, std::string>>& ties) {
  std::map<std::string, TiedNames> groups;
  for (const auto& [one, other] : ties) {
    TiedNames joined{one, other};
    for (const std::string& name : {one, other}) joined.insert(groups[name].begin(), groups[name].end());
    for (const std::string& name : joined) groups[name] = joined;
  }
  return groups;
}

}  // namespace

void add_tied_names(ir::Graph& graph, const ParameterRules& rules) {
  const std::map<std::string, TiedNames> groups = groups_of(rules.ties());
  if (groups.empty()) return;
  TiedNames taken;
  for (const ir::ParamId id : graph.param_ids()) {
    taken.insert(graph.param(id).name.raw());
    for (const ModelText& alias : graph.param(id).aliases) taken.insert(alias.raw());
  }
  for (const ir::ParamId id : graph.param_ids()) {
    ir::Param& param = graph.param(id);
    std::vector<ModelText> own = param.aliases;
    own.push_back(param.name);
    for (const ModelText& name : own) {
      const auto group = groups.find(name.raw());
      if (group == groups.end()) continue;
      for (const std::string& tied : group->second)
        if (taken.insert(tied).second) param.aliases.push_back(ModelText(tied));
    }
  }
}

}  // namespace graphpipe::frontend
