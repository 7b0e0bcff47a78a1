#include "frontend/tied_names.h"

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "support/union_find.h"

namespace graphpipe::frontend {
namespace {

/// The groups that pairs of names make.
class TiedGroups {
 public:
  explicit TiedGroups(const std::vector<std::pair<std::string, std::string>>& ties) {
    for (const auto& [one, other] : ties)
      for (const std::string* name : {&one, &other}) numbers_.emplace(*name, numbers_.size());
    UnionFind<size_t> sets(numbers_.size());
    for (const auto& [one, other] : ties) sets.join(numbers_.at(one), numbers_.at(other));
    members_.resize(numbers_.size());
    for (auto& [name, number] : numbers_) members_[number = sets.find(number)].push_back(name);
  }
  /// The names of the group that the name belongs to, once: the next call for the group finds none.
  std::vector<std::string> take(const std::string& name) {
    const auto found = numbers_.find(name);
    return found == numbers_.end() ? std::vector<std::string>() : std::exchange(members_[found->second], {});
  }

 private:
  std::map<std::string, size_t> numbers_;          // at last, of their groups
  std::vector<std::vector<std::string>> members_;  // by group, in order
};

}  // namespace

void add_tied_names(ir::Graph& graph, const ParameterRules& rules) {
  TiedGroups groups(rules.ties());
  std::set<std::string> taken;
  for (const ir::ParamId id : graph.param_ids()) {
    taken.insert(graph.param(id).name.raw());
    for (const ModelText& alias : graph.param(id).aliases) taken.insert(alias.raw());
  }
  for (const ir::ParamId id : graph.param_ids()) {
    ir::Param& param = graph.param(id);
    std::vector<ModelText> own = param.aliases;
    own.push_back(param.name);
    for (const ModelText& name : own)
      for (const std::string& tied : groups.take(name.raw()))
        if (taken.insert(tied).second) param.aliases.push_back(ModelText(tied));
  }
}

}  // namespace graphpipe::frontend
