#include "driver/report/profile_plan_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "driver/report/plan_report.h"
#include "driver/report/report.h"
#include "support/units.h"

namespace graphpipe::driver {
namespace {

using partitioner::PlanAnswer;
using partitioner::PlanCandidate;

/// Layers of a stage in the order of the file.
std::vector<ir::PlanNodeId> layers_of(const ProfileProblem& problem, const ir::Assignment& plan, ir::StageId stage) {
  std::vector<ir::PlanNodeId> layers;
  for (const ir::PlanNodeId id : problem.profile().graph.file_order.nodes)
    if (plan.stage_of[id] == stage) layers.push_back(id);
  return layers;
}

void add_nodes(JsonObject& object, const ir::PlanGraph& graph, const std::vector<ir::PlanNodeId>& layers) {
  std::vector<std::string> names;
  std::vector<int64_t> numbers;
  for (const ir::PlanNodeId id : layers) {
    const std::string& name = graph.nodes[id].label.raw();
    names.push_back(name);
    int64_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size()) numbers.push_back(number);
  }
  if (numbers.size() == names.size()) object.add("nodes", numbers);
  else object.add("nodes", names);
}

/// For each layer, the number of its alternative among those of the stage's degree.
std::vector<int64_t> variants_of(const ProfileProblem& problem, const ir::Assignment& plan,
                                 const std::vector<ir::PlanNodeId>& layers) {
  std::vector<int64_t> variants;
  for (const ir::PlanNodeId id : layers) {
    const auto& ways = problem.profile().graph.nodes[id].alternatives;
    const auto first =
        std::ranges::find(ways, plan.choice[plan.stage_of[id]].degree, &ir::NodeAlternative::degree) - ways.begin();
    variants.push_back(plan.alternative[id] - (first < std::ssize(ways) ? first : 0));
  }
  return variants;
}

std::string planner_of(const Options& options) {
  return options.plan.plan.empty() ? options.plan.planner : std::string(partitioner::kManual);
}

}  // namespace

JsonObject profile_json(const Options& options, const ProfileProblem& problem, const PlanAnswer& answer) {
  const PlanCandidate& plan = answer.candidates.front();
  std::vector<JsonObject> stages;
  for (const ir::StageId s : ids<ir::StageId>(plan.assignment.choice.size())) {
    const ir::StageChoice& choice = plan.assignment.choice[s];
    const std::vector<ir::PlanNodeId> layers = layers_of(problem, plan.assignment, s);
    JsonObject object;
    add_nodes(object, problem.profile().graph, layers);
    object.add("devices", devices_of(choice)).add("micro_batch", choice.micro_batch.count);
    object.add("replicas", static_cast<int>(choice.devices.size())).add("degree", choice.degree);
    if (!plan.assignment.alternative.empty()) object.add("variants", variants_of(problem, plan.assignment, layers));
    stages.push_back(object.add("cpu", problem.is_on_cpu(choice)).add("recompute", choice.recompute));
  }
  JsonObject object;
  object.add("planner", planner_of(options));
  object.add("objective", plan.own->objective).add("unit", std::string(plan.own->unit));
  object.add("bound", plan.own->bound).add("gap", plan.own->gap()).add("stages", stages);
  object.add("search_seconds", answer.search_seconds).add("simulated_step", plan.step_seconds);
  if (const auto steady = problem.steady_of(plan))
    object.add("steady_step", steady->step_seconds).add("steady_update", steady->update_seconds);
  object.add("execute", std::string(ir::execution_name(problem.profile().graph.execution)));
  object.add("micro_batches", problem.micro_batches()).add("devices", problem.devices());
  object.add("fits_memory", plan.fits).add("fits_as_counted_there", plan.own->fits);
  object.add("states", answer.states).add("pairs", answer.pairs).add("stopped", answer.stopped);
  return object.add("limit", problem.limit_of(plan)).add("profile_format", options.foreign.format);
}

std::string profile_text(const Options& options, const ProfileProblem& problem, const PlanAnswer& answer) {
  const PlanCandidate& plan = answer.candidates.front();
  std::vector<std::vector<std::string>> rows{{"stage", "devices", "layers", "degree", "first layer"}};
  for (const ir::StageId s : ids<ir::StageId>(plan.assignment.choice.size())) {
    const ir::StageChoice& choice = plan.assignment.choice[s];
    const std::vector<ir::PlanNodeId> layers = layers_of(problem, plan.assignment, s);
    const ir::PlanNode& first = problem.profile().graph.nodes[layers.front()];
    rows.push_back({text("s", s), problem.is_on_cpu(choice) ? "cpu" : devices_text(choice),
                    std::to_string(layers.size()), std::to_string(choice.degree),
                    text(Terminal::encode(first.label).str().substr(0, 20), " ",
                         Terminal::encode(first.description).str().substr(0, 40))});
  }
  const partitioner::OwnObjective& own = *plan.own;
  std::string out = table(rows);
  const std::string objective = std::isfinite(own.objective)
                                    ? fmt::format("objective {:.9g} {}, bound {:.9g} (gap {:.2f} %)", own.objective,
                                                  own.unit, own.bound, 100 * own.gap())
                                    : "no objective";
  out += fmt::format("planner {}: {}, searched {}{}\n", planner_of(options), objective,
                     human_seconds(answer.search_seconds), answer.stopped.empty() ? "" : "; " + answer.stopped);
  out += text("simulated step ",
              std::isfinite(plan.step_seconds) ? human_seconds(plan.step_seconds) : "none: the policy has no schedule",
              "\n");
  if (const auto steady = problem.steady_of(plan)) out += steady_line(*steady);
  if (!plan.fits)
    out += text("the plan does not fit the memory of the devices",
                own.fits ? " with what a schedule keeps in flight" : "", "; it is timed as if it did\n");
  if (const std::string limit = problem.limit_of(plan); !limit.empty()) out += "limited by " + limit + "\n";
  return out;
}

}  // namespace graphpipe::driver
