#include "driver/pipeline/stage_modules.h"

#include <filesystem>
#include <map>
#include <set>

#include "files/module_facts.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

using Modules = std::vector<std::vector<std::string>>;

Modules modules_of(const Pipeline& pipeline, const files::ModuleFacts& facts) {
  Modules modules(pipeline.stages.stages.size());
  std::map<std::string, std::set<size_t>> stages_of;
  for (const ir::StageId id : pipeline.stages.stage_ids())
    for (const ir::PlanNodeId node : pipeline.stages.stages[id].nodes) {
      const auto found = facts.module_of_node.find(pipeline.priced.nodes[node].label.raw());
      if (found == facts.module_of_node.end()) continue;
      const std::string& path = found->second.raw();
      for (size_t end = path.find('.'); end != std::string::npos; end = path.find('.', end + 1))
        stages_of[path.substr(0, end)].insert(id.index());
      stages_of[path].insert(id.index());
    }
  for (const auto& [path, stages] : stages_of) {
    const size_t dot = path.rfind('.');
    if (stages.size() == 1 && (dot == std::string::npos || stages_of[path.substr(0, dot)].size() > 1))
      modules[*stages.begin()].push_back(path);
  }
  return modules;
}

}  // namespace

Result<Modules> stage_modules(const Pipeline& pipeline) {
  std::error_code error;
  const fs::path model = fs::weakly_canonical(pipeline.model.imported.files.front(), error);
  GP_TRY(const std::optional<files::ModuleFacts> facts, files::module_facts_beside(model.string()));
  if (!facts) return Modules(pipeline.stages.stages.size());
  return modules_of(pipeline, *facts);
}

std::vector<std::string> modules_in(const Pipeline& pipeline, ir::StageId stage) {
  return stage.index() < pipeline.modules.size() ? pipeline.modules[stage.index()] : std::vector<std::string>();
}

}  // namespace graphpipe::driver
