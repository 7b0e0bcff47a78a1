// graphpipe schedule: a policy's order without a model, in the forms that people and other programs read.

#include <unistd.h>

#include <iostream>

#include "driver/commands.h"
#include "driver/report.h"
#include "driver/schedule_report.h"
#include "files/schedule_csv.h"
#include "files/schedule_file.h"
#include "files/text_file.h"
#include "scheduler/gantt.h"
#include "scheduler/insert_transfers.h"

namespace graphpipe::driver {
namespace {

Result<std::string> csv_text(const ScheduleStudy& study) {
  GP_TRY(const files::CsvSchedule csv, files::csv_of(study.graph, study.schedule, files::CsvLevel::kCompute));
  return files::print_schedule_csv(csv);
}

// PyTorch joins neighbouring halves of a backward before it adds communication.
Result<std::string> csv_with_communication(const ScheduleStudy& study) {
  ir::Schedule compute;
  for (const ir::Program& program : study.schedule.programs) {
    compute.programs.push_back({program.device, {}});
    for (const ir::Action& action : program.actions)
      if (ir::is_compute(action.op)) compute.programs.back().actions.push_back(action);
  }
  files::merge_backwards(compute);
  GP_TRY(const ir::Schedule lowered,
         scheduler::insert_transfers(study.graph, std::move(compute), {.finish_step = false}));
  GP_TRY(const files::CsvSchedule csv, files::csv_of(study.graph, lowered, files::CsvLevel::kCommunication));
  return files::print_schedule_csv(csv);
}

std::string picture_text(const ScheduleStudy& study) {
  const bool color = isatty(STDOUT_FILENO) != 0 && getenv("NO_COLOR") == nullptr;
  return scheduler::gantt_text(study.graph, study.schedule, study.timeline,
                               {.width = 110, .color = color, .figures = false}) +
         study_text(study);
}

Result<std::string> form_of(const ScheduleStudy& study, const std::string& format) {
  if (format == "csv") return csv_text(study);
  if (format == "csv-comms") return csv_with_communication(study);
  if (format == "svg") return scheduler::gantt_svg(study.graph, study.schedule, study.timeline);
  if (format == "trace") return scheduler::trace_json(study.graph, study.schedule, study.timeline, {});
  if (format == "ir") return ir::print_schedule(study.schedule);
  if (format == "proto") return files::print_schedule_file({.plan_digest = "", .schedule = study.schedule});
  if (format == "pb") return files::print_schedule_binary({.plan_digest = "", .schedule = study.schedule});
  if (format == "json") return study_json(study).str() + "\n";
  return picture_text(study);
}

}  // namespace

int run_schedule(const Options& options) {
  const Result<ScheduleStudy> study = make_study(options.schedule);
  if (!study) return report_problems(options, "schedule", study.problems());
  const Result<std::string> form = form_of(*study, options.format);
  if (!form) return report_problems(options, "schedule", form.problems());
  if (!options.output.empty()) {
    const Status written = files::write_file(options.output, *form);
    if (!written) return report_problems(options, "schedule", written.problems());
  }
  if (options.json || (options.format == "json" && options.output.empty()))
    print_json("schedule", study_json(*study), {});
  else if (options.output.empty()) std::cout << *form;
  else if (!options.quiet) std::cout << study_text(*study);
  return 0;
}

}  // namespace graphpipe::driver
