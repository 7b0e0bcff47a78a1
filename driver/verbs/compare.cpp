// graphpipe compare: several planners and policies on one model, all ranked by one simulator.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>
#include <tuple>

#include "driver/cli/commands.h"
#include "driver/cli/suggestion.h"
#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/model_spec.h"
#include "driver/pipeline/pipeline.h"
#include "driver/pipeline/plan_profile.h"
#include "driver/pipeline/scope_notes.h"
#include "driver/pipeline/search_plan.h"
#include "driver/report/report.h"
#include "driver/report/traffic.h"
#include "partitioner/planner.h"
#include "scheduler/policies/policies.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
namespace {

// The result of one planner with one policy.
struct Contender {
  std::string planner, policy;
  Diagnostics problems;  // why there is no plan; empty where there is one
  partitioner::OwnObjective own = {};
  double step = 0;                               // simulated seconds
  std::optional<scheduler::SteadyState> steady;  // of asynchronous policies
  int64_t peak_bytes = 0;                        // of the fullest device
  double idle = 0;                               // part of the devices' time; this and the next not of profiles
  int64_t message_bytes = 0;                     // of all devices
  size_t stages = 0;
  ir::Execution execution = {};
  bool is_made_a_chain = false;
  double search_seconds = 0;
  bool complete = true;
  bool fits = true;  // of profiles: a plan that does not fit the memory is timed as if it did
};

// "a,b" as a list of known names, each once.
Result<std::vector<std::string>> names_of(const std::string& flag, const std::string& list,
                                          const std::vector<std::string>& known) {
  std::vector<std::string> names;
  for (const std::string_view part : split(list, ",")) {
    const std::string name(part);
    if (std::ranges::find(known, name) == known.end())
      return usage(flag + " " + list, text("there is no ", quoted(ModelText(name)), suggestion(name, known)),
                   "separate names by commas; `graphpipe plan --help` lists them");
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return names;
}

// The planners that the flag names; without it, all that search for a plan and end in reasonable time.
Result<std::vector<std::string>> planners_of(const Options& options) {
  std::vector<std::string> known, usual;
  for (const partitioner::PlannerEntry& entry : partitioner::planners()) {
    known.emplace_back(entry.name);
    if (!entry.traits.is_given && !entry.traits.is_exhaustive) usual.emplace_back(entry.name);
  }
  if (options.planners.empty()) return usual;
  for (const std::string_view name : split(options.planners, ","))
    if (const auto* entry = partitioner::find_planner(name); entry != nullptr && entry->traits.is_given)
      return usage("--planners " + options.planners,
                   text("the stages of '", entry->name, "' are those of a plan file, which compare reads none of"),
                   "leave it out; `graphpipe report A.json B.json` shows plans beside each other");
  return names_of("--planners", options.planners, known);
}

bool may_flow(const std::string& policy) { return scheduler::find_policy(policy)->choices.drain_every; }

Result<std::vector<std::string>> policies_of(const Options& options) {
  std::vector<std::string> known;
  for (const scheduler::Policy& policy : scheduler::all_policies()) known.emplace_back(policy.name);
  GP_TRY(std::vector<std::string> policies, names_of("--policies", options.policies, known));
  if (options.given.contains("--drain-every") && std::ranges::none_of(policies, may_flow))
    return usage("--drain-every", "all the policies drain after every batch",
                 "leave it out, or name an asynchronous one with --policies");
  return policies;
}

// Planners of profiles decide the stages, so a policy must accept them as they are.
Status check_policies_of_profiles(const std::vector<std::string>& policies) {
  for (const std::string& name : policies) {
    const scheduler::Policy& policy = *scheduler::find_policy(name);
    if (policy.forward_only)
      return usage("--policies " + name, "it runs forwards only, a profile is of training", "leave it out");
    if (policy.shape != scheduler::StageShape::kAny)
      return usage("--policies " + name, "it needs stages of its own shape, which no planner of profiles makes",
                   "leave it out, or compare it on an ONNX model");
  }
  return Ok{};
}

// Plans the model that `pipeline` holds with its prices, and leaves the plan there.
Status contend(const Options& options, Pipeline& pipeline, Contender& contender) {
  PlanOptions plan = options.plan;
  plan.planner = pipeline.plan.planner = contender.planner;
  plan.policy = pipeline.plan.policy = contender.policy;
  pipeline.plan.execution = pipeline.priced.execution = execution_for(plan.execute, contender.policy);
  if (!may_flow(contender.policy)) plan.order.drain_every = 0;
  pipeline.order.drain_every = plan.order.drain_every;
  pipeline.plan.schedule.reset();
  pipeline.search_seconds = 0;
  pipeline.multi_stage.reset();
  GP_TRY_VOID(search_plan(pipeline, plan, nullptr));
  contender.own = pipeline.objective;
  contender.search_seconds = pipeline.search_seconds;
  contender.complete = pipeline.complete;
  contender.step = pipeline.built.step_seconds();
  contender.steady = pipeline.steady;
  for (const scheduler::DeviceMemory& memory : pipeline.built.memory)
    contender.peak_bytes = std::max(contender.peak_bytes, memory.peak.count);
  contender.idle = scheduler::metrics_of(pipeline.built.schedule, pipeline.built.timeline).bubble_of_makespan;
  contender.message_bytes = total_of(traffic_of(pipeline.stages, pipeline.built.schedule).messages).count;
  contender.stages = pipeline.stages.stages.size();
  contender.execution = pipeline.stages.execution;
  contender.is_made_a_chain = is_made_a_chain(pipeline.stages);
  return Ok{};
}

// Plans a profile of another project.
Status contend(const Options&, const ProfileProblem& problem, Contender& contender) {
  GP_TRY(const partitioner::PlanAnswer answer, problem.plan(contender.planner));
  const partitioner::PlanCandidate& plan = answer.candidates.front();
  GP_TRY_VOID(problem.schedule_problems(plan));
  contender.own = *plan.own;
  contender.step = plan.step_seconds;
  contender.steady = problem.steady_of(plan);
  contender.stages = plan.assignment.choice.size();
  contender.execution = problem.profile().graph.execution;
  if (const auto scheduled = problem.scheduled(plan); scheduled.ok())
    contender.is_made_a_chain = is_made_a_chain(scheduled->stages);
  contender.search_seconds = answer.search_seconds;
  contender.complete = answer.complete;
  contender.fits = plan.fits;
  return Ok{};
}

// A planner that fails becomes an entry of its own; the comparison goes on.
template <typename Subject>
std::vector<Contender> contend_all(const Options& options, Subject& subject, const std::vector<std::string>& planners,
                                   const std::vector<std::string>& policies) {
  Progress progress(options, "comparing");
  std::vector<Contender> contenders;
  for (const std::string& planner : planners)
    for (const std::string& policy : policies) {
      const auto all = static_cast<double>(planners.size() * policies.size());
      progress.update(static_cast<double>(contenders.size()) / all, planner);
      Contender& contender = contenders.emplace_back();
      contender.planner = planner;
      contender.policy = policy;
      if (interrupted()) {
        contender.complete = false;
        contender.problems = {Diagnostic{.code = Code::kInterrupted,
                                         .message = "the comparison was interrupted before this planner was asked",
                                         .hint = "compare again, with fewer planners or policies"}};
        continue;
      }
      if (const Status done = contend(options, subject, contender); !done) contender.problems = done.problems();
    }
  return contenders;
}

// The profile is read anew for each policy, whose schedules time the plans during the search.
Result<std::vector<Contender>> contend_for_profile(const Options& options, const std::vector<std::string>& planners,
                                                   const std::vector<std::string>& policies) {
  GP_TRY_VOID(check_policies_of_profiles(policies));
  std::vector<Contender> all;
  for (const std::string& policy : policies) {
    Options own = options;
    own.plan.policy = policy;
    GP_TRY(const std::unique_ptr<ProfileProblem> problem, ProfileProblem::read(own));
    for (Contender& contender : contend_all(own, *problem, planners, {policy})) all.push_back(std::move(contender));
  }
  return all;
}

// `machine` is set to a description of the devices where plans of a model are compared.
Result<std::vector<Contender>> compare(const Options& options, std::string& machine) {
  GP_TRY(const std::vector<std::string> planners, planners_of(options));
  GP_TRY(const std::vector<std::string> policies, policies_of(options));
  if (options.foreign.is_foreign()) {
    return contend_for_profile(options, planners, policies);
  }
  if (options.model.model.empty()) return usage("model", "no model is named", "add the ONNX file to compare plans of");
  // A forward-only graph is a different model: it has no loss and no backward.
  const auto forwards_only = std::ranges::count_if(policies, runs_forwards_only);
  if (forwards_only > 0 && forwards_only < std::ssize(policies))
    return usage("--policies", "some of them train and some run forwards only, which no table can compare",
                 "compare policies that train, or those that do not");
  Options priced = options;
  if (forwards_only > 0) priced.plan.policy = policies.front();
  GP_TRY(Pipeline pipeline, price_model(priced));
  machine = pipeline.machine.sentence;
  for (Diagnostic& note : scope_notes(pipeline.model.graph, pipeline.priced, nullptr))
    pipeline.model.notes.push_back(std::move(note));
  report_notes(priced, pipeline.model.notes);
  return contend_all(priced, pipeline, planners, policies);
}

JsonObject contender_json(const Contender& contender, bool best) {
  JsonObject object;
  object.add("planner", contender.planner).add("policy", contender.policy);
  if (!contender.problems.empty())
    return object.add("error", Terminal::encode_text(contender.problems.front().message).str());
  const partitioner::OwnObjective& own = contender.own;
  object.add("objective", own.objective).add("unit", std::string(own.unit)).add("bound", own.bound);
  object.add("gap", own.gap()).add("simulated_step", contender.step);
  if (contender.steady)
    object.add("steady_step", contender.steady->step_seconds).add("steady_update", contender.steady->update_seconds);
  if (contender.peak_bytes > 0)
    object.add("peak_bytes", contender.peak_bytes)
        .add("idle_fraction", contender.idle)
        .add("message_bytes", contender.message_bytes);
  object.add("execute", std::string(ir::execution_name(contender.execution)));
  object.add("stages", contender.stages).add("search_seconds", contender.search_seconds);
  return object.add("best", best).add("fits_memory", contender.fits).add("complete", contender.complete);
}

/// The fastest first; then the plans that do not fit the memory, the fastest first; last the planners without a plan.
void sort_by_step(std::vector<Contender>& contenders) {
  const auto rank = [](const Contender& c) { return std::tuple(!c.problems.empty(), !c.fits, c.step); };
  std::ranges::stable_sort(contenders, {}, rank);
}

/// Of several plans that are equally fast, only the first wins.
bool is_winner(const std::vector<Contender>& sorted, const Contender& contender) {
  return &contender == &sorted.front() && contender.problems.empty() && contender.fits;
}

std::string contender_table(const std::vector<Contender>& contenders) {
  std::vector<double> steps, peaks, messages, searches;
  const bool any_steady = std::ranges::any_of(contenders, [](const Contender& c) { return c.steady.has_value(); });
  for (const Contender& contender : contenders) {
    if (!contender.problems.empty()) continue;
    steps.push_back(contender.step);
    peaks.push_back(static_cast<double>(contender.peak_bytes));
    messages.push_back(static_cast<double>(contender.message_bytes));
    searches.push_back(contender.search_seconds);
  }
  const Column step(seconds_units(), steps), peak(byte_units(), peaks), sent(byte_units(), messages),
      search({.first = 1e-3, .names = {"ms"}}, searches);
  std::vector<std::vector<std::string>> rows{{"", "planner", "policy", step.heading("step"), "of best", "stages",
                                              "idle", peak.heading("peak memory"), sent.heading("messages"),
                                              search.heading("search"), ""}};
  const auto add_steady = [&](std::string cell) {
    constexpr std::ptrdiff_t kBehindSteps = 5;
    if (any_steady) rows.back().insert(rows.back().begin() + kBehindSteps, std::move(cell));
  };
  add_steady("undrained");
  std::string failures;
  for (const Contender& contender : contenders) {
    if (!contender.problems.empty()) {
      failures += contender.planner + ", " + contender.policy + ": " + to_line(contender.problems.front()) + "\n";
      continue;
    }
    std::string remark;
    const auto remark_on = [&](bool holds, std::string_view words) {
      if (holds) remark += (remark.empty() ? "" : ", ") + std::string(words);
    };
    remark_on(!contender.fits, "does not fit");
    remark_on(!contender.complete, "ended early");
    remark_on(contender.is_made_a_chain, "executed as a chain");  // branches one after the other
    remark_on(contender.steady.has_value(), "asynchronous");      // it trains other weights than the others
    rows.push_back(
        {is_winner(contenders, contender) ? "*" : "", contender.planner, contender.policy, step.cell(contender.step),
         fmt::format("{:.3f}", contender.step / contenders.front().step), std::to_string(contender.stages),
         contender.peak_bytes > 0 ? fmt::format("{:.1f} %", 100 * contender.idle) : "-",
         peak.cell(static_cast<double>(contender.peak_bytes)), sent.cell(static_cast<double>(contender.message_bytes)),
         search.cell(contender.search_seconds), remark});
    add_steady(step.cell(contender.steady ? contender.steady->step_seconds : 0));
  }
  return (rows.size() > 1 ? table(rows) : "") + failures;
}

bool any_has_plan(const std::vector<Contender>& contenders) {
  return std::ranges::any_of(contenders, [](const Contender& c) { return c.problems.empty(); });
}

/// What stands in the way of all contenders. Most planners refuse a request for the same reason, which is told once.
Diagnostics problems_of_all(const std::vector<Contender>& contenders) {
  Diagnostics problems;
  std::set<std::string> seen;
  for (const Contender& contender : contenders)
    for (const Diagnostic& problem : contender.problems)
      if (seen.insert(to_line(problem)).second) problems.push_back(problem);
  return problems;
}

// The exit code of the comparison; if no contender has a plan, that of the first contender's problem.
int exit_code(const Options& options, const std::vector<Contender>& contenders, bool complete) {
  if (!any_has_plan(contenders) && !contenders.empty() && !interrupted()) {
    Options as_text = options;
    as_text.json = false;
    return report_problems(as_text, "compare", contenders.front().problems);
  }
  return end_code(complete);
}

}  // namespace

int run_compare(const Options& options) {
  catch_interrupts();
  std::string machine;
  Result<std::vector<Contender>> contenders = compare(options, machine);
  if (!contenders) return report_problems(options, "compare", contenders.problems());
  sort_by_step(*contenders);
  // Without any plan there is no answer, as where `plan` has none. A contender without one beside others is part of it.
  const bool has_answer = any_has_plan(*contenders);
  const bool complete =
      has_answer && !interrupted() && std::ranges::all_of(*contenders, [](const Contender& c) { return c.complete; });
  if (options.json) {
    std::vector<JsonObject> rows;
    for (const Contender& contender : *contenders)
      rows.push_back(contender_json(contender, is_winner(*contenders, contender)));
    JsonObject object;
    if (!machine.empty()) object.add("devices", machine);
    print_json("compare", object.add("plans", rows), has_answer ? Diagnostics{} : problems_of_all(*contenders),
               complete);
  } else {
    if (!machine.empty()) std::cout << "devices: " << machine << "\n";
    std::cout << contender_table(*contenders);
  }
  return exit_code(options, *contenders, complete);
}

}  // namespace graphpipe::driver
