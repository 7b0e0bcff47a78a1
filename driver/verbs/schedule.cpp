// graphpipe schedule: a policy's order without a model, in the forms that people and other programs read.

#include <algorithm>
#include <iostream>

#include "driver/cli/commands.h"
#include "driver/cli/output_path.h"
#include "driver/report/report.h"
#include "driver/report/schedule_report.h"
#include "files/schedule_csv.h"
#include "files/schedule_file.h"
#include "files/text_file.h"
#include "scheduler/lowering/insert_transfers.h"
#include "scheduler/render/gantt.h"

namespace graphpipe::driver {
namespace {

Result<std::string> csv_text(const StandaloneSchedule& standalone) {
  GP_TRY(const files::CsvSchedule csv, files::csv_of(standalone.graph, standalone.schedule, files::CsvLevel::kCompute));
  return files::print_schedule_csv(csv);
}

// A list of actions is read back as a chain of stages with micro-batches of one size.
Diagnostics what_csv_lacks(const StandaloneSchedule& standalone) {
  const ir::StageGraph& graph = standalone.graph;
  const bool is_chain = graph.edges.size() + 1 == graph.stages.size();
  const auto is_chained = [](const ir::StageEdge& edge) { return edge.to.index() == edge.from.index() + 1; };
  const auto has_one_size = [&](const ir::Stage& stage) {
    return stage.choice.micro_batch == graph.stages[ir::StageId(0u)].choice.micro_batch;
  };
  if (is_chain && std::ranges::all_of(graph.edges, is_chained) && std::ranges::all_of(graph.stages, has_one_size))
    return {};
  return {{.code = Code::kUsage,
           .severity = Severity::kWarning,
           .origin = ModelText("--format csv"),
           .message =
               "the file does not say which stages feed each other, nor the sizes of their micro-batches: `check` "
               "reads it as a chain",
           .hint = "for `check` write --format ir or proto"}};
}

// PyTorch joins neighbouring halves of a backward before it adds communication.
Result<std::string> csv_with_communication(const StandaloneSchedule& standalone) {
  ir::Schedule compute;
  for (const ir::Program& program : standalone.schedule.programs) {
    compute.programs.push_back({program.device, {}});
    for (const ir::Action& action : program.actions)
      if (ir::is_compute(action.op)) compute.programs.back().actions.push_back(action);
  }
  files::merge_backwards(compute);
  GP_TRY(const ir::Schedule lowered,
         scheduler::insert_transfers(standalone.graph, std::move(compute), {.finish_step = false}));
  GP_TRY(const files::CsvSchedule csv, files::csv_of(standalone.graph, lowered, files::CsvLevel::kCommunication));
  return files::print_schedule_csv(csv);
}

std::string picture_text(const StandaloneSchedule& standalone, bool color) {
  return scheduler::gantt_text(standalone.graph, standalone.schedule, standalone.timeline,
                               {.width = 110, .color = color, .metrics = false}) +
         standalone_text(standalone);
}

Result<std::string> form_of(const StandaloneSchedule& standalone, const Options& options) {
  const std::string& format = options.format;
  if (format == "csv") return csv_text(standalone);
  if (format == "csv-comms") return csv_with_communication(standalone);
  if (format == "svg")
    return scheduler::gantt_svg(standalone.graph, standalone.schedule, standalone.timeline,
                                {.ticks_per_unit = scheduler::kTicksPerUnit, .unit = ""});
  if (format == "trace") return scheduler::trace_json(standalone.graph, standalone.schedule, standalone.timeline, {});
  if (format == "ir") return ir::print_schedule(standalone.schedule);
  if (format == "proto") return files::print_schedule_file({.plan_digest = "", .schedule = standalone.schedule});
  if (format == "pb") return files::print_schedule_binary({.plan_digest = "", .schedule = standalone.schedule});
  if (format == "json") return standalone_json(standalone).str() + "\n";
  return picture_text(standalone, takes_color(options));
}

}  // namespace

int run_schedule(const Options& options) {
  if (const Status output = check_output(options); !output)
    return report_problems(options, "schedule", output.problems());
  const Result<StandaloneSchedule> standalone = make_standalone(options.schedule);
  if (!standalone) return report_problems(options, "schedule", standalone.problems());
  const Result<std::string> form = form_of(*standalone, options);
  if (!form) return report_problems(options, "schedule", form.problems());
  if (options.format == "csv" && !options.schedule.dag.empty()) report_notes(options, what_csv_lacks(*standalone));
  if (!options.output.empty()) {
    const Status written = files::write_file(options.output, *form);
    if (!written) return report_problems(options, "schedule", written.problems());
  }
  if (options.json || (options.format == "json" && options.output.empty()))
    print_json("schedule", standalone_json(*standalone), {});
  else if (options.output.empty()) std::cout << *form;
  else if (!options.quiet) std::cout << standalone_text(*standalone);
  return 0;
}

}  // namespace graphpipe::driver
