#include "frontend/tied_names.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace graphpipe::frontend {
namespace {

/// The groups that pairs of names make (union-find, by size, with paths halved).
class TiedGroups {
 public:
  explicit TiedGroups(const std::vector<std::pair<std::string, std::string>>& ties) {
    for (const auto& [one, other] : ties) join(number_of(one), number_of(other));
    members_.resize(names_.size());
    for (size_t i = 0; i < names_.size(); ++i) members_[root_of(i)].push_back(i);
  }
  /// The names of the group that the name belongs to, once: the next call for the group finds none.
  std::vector<std::string> take(const std::string& name) {
    std::vector<std::string> taken;
    const auto found = numbers_.find(name);
    if (found == numbers_.end()) return taken;
    for (const size_t member : std::exchange(members_[root_of(found->second)], {})) taken.push_back(names_[member]);
    std::ranges::sort(taken);
    return taken;
  }

 private:
  size_t number_of(const std::string& name) {
    const auto [place, added] = numbers_.emplace(name, names_.size());
    if (added) {
      names_.push_back(name);
      above_.push_back(place->second);
      sizes_.push_back(1);
    }
    return place->second;
  }
  size_t root_of(size_t at) {
    while (above_[at] != at) at = above_[at] = above_[above_[at]];
    return at;
  }
  void join(size_t one, size_t other) {
    one = root_of(one);
    other = root_of(other);
    if (one == other) return;
    if (sizes_[one] < sizes_[other]) std::swap(one, other);
    above_[other] = one;
    sizes_[one] += sizes_[other];
  }

  std::map<std::string, size_t> numbers_;
  std::vector<std::string> names_;
  std::vector<size_t> above_, sizes_;
  std::vector<std::vector<size_t>> members_;  // by root
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
