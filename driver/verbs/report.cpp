// graphpipe report: plans as one HTML page, or one of its pictures.

#include "driver/report/report.h"

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "driver/cli/commands.h"
#include "driver/cli/output_path.h"
#include "driver/cli/usage.h"
#include "driver/report/html/page.h"
#include "driver/report/html/stage_picture.h"
#include "driver/sweep/sweep_page.h"
#include "files/strict_json.h"
#include "files/text_file.h"

namespace graphpipe::driver {
namespace {

namespace fs = std::filesystem;

/// The "seconds" of each step in a run's log, without the first two steps, which warm up (the last step is always
/// kept). A line that is still being written is ignored.
Result<Measured> measured_by(const std::string& log) {
  constexpr int64_t kMaxBytes = int64_t{256} << 20;
  GP_TRY(const std::string content, files::read_file(log, kMaxBytes));
  Measured measured;
  std::vector<std::string_view> lines = split(content, "\n");
  lines.pop_back();
  for (size_t i = 0; i < lines.size(); ++i) {
    double seconds = 0;
    bool has_loss = false;
    const auto look = [&](const files::JsonEvent& event) {
      if (event.path.size() != 1) return std::string();
      has_loss = has_loss || event.path[0] == "loss";
      if (event.path[0] == "seconds") seconds = event.number;
      return std::string();
    };
    if (const Status read = files::scan_json(lines[i], {}, look); !read)
      return Diagnostic{.code = Code::kMalformedFile,
                        .origin = ModelText(log),
                        .message = text("line ", i + 1, " is no step: ", read.problems().front().message),
                        .hint = "pass what `graphpipe run --log FILE.jsonl` wrote"};
    if (has_loss && seconds > 0) measured.step_seconds.push_back(seconds);
  }
  if (measured.step_seconds.empty())
    return Diagnostic{.code = Code::kMalformedFile,
                      .origin = ModelText(log),
                      .message = "it has no step with its seconds",
                      .hint = "pass what `graphpipe run --log FILE.jsonl` wrote"};
  const size_t warm = std::min<size_t>(2, measured.step_seconds.size() - 1);
  measured.step_seconds.erase(measured.step_seconds.begin(),
                              measured.step_seconds.begin() + static_cast<std::ptrdiff_t>(warm));
  return measured;
}

Result<std::vector<ReportedPlan>> load_plans(const Options& options) {
  std::vector<ReportedPlan> plans;
  Diagnostics problems;
  for (const std::string& path : options.inputs) {
    Result<Pipeline> pipeline = load_pipeline(path, options.model.trusted_root);
    // The log that `run --log` wrote, in the place of a plan.
    if (!pipeline && path.ends_with(".jsonl"))
      return usage(path, "it is no plan", "pass the log of a run with --measured, beside its plan");
    if (!pipeline) {
      for (const Diagnostic& problem : pipeline.problems()) problems.push_back(problem);
      continue;
    }
    plans.push_back({.name = path, .pipeline = std::move(*pipeline), .measured = {}});
  }
  if (!problems.empty()) return problems;
  if (!options.measured.empty()) {
    if (plans.size() != 1)
      return usage("--measured " + options.measured, "it is the log of one plan's run",
                   "name one plan, or leave it out");
    GP_TRY(plans.front().measured, measured_by(options.measured));
  }
  return plans;
}

/// Writes the page of a sweep's table, which is in `input`. Errors: kUsage for options and further inputs that are
/// about plans.
Status write_sweep_report(const Options& options, const std::string& input, const std::string& table_file) {
  if (options.inputs.size() != 1 || options.format != "html" || !options.measured.empty())
    return usage(input, "it is the table of a sweep, which is a page of its own",
                 "name it alone, without --format and --measured");
  const std::filesystem::path folder = std::filesystem::path(table_file).parent_path();
  const std::vector<std::string> of_sweep = {table_file, folder / kSweepCells, folder / kSweepCsv, folder / kSweepPlot};
  GP_TRY_VOID(check_output(options, of_sweep));
  GP_TRY(const SweepTable table, read_sweep_table(table_file));
  return files::write_file(options.output, sweep_page(input, table));
}

Status write_report(const Options& options) {
  for (const std::string& path : options.inputs)
    if (const std::string table = sweep_table_file(path); !table.empty())
      return write_sweep_report(options, path, table);
  if (options.format != "html" && (options.inputs.size() != 1 || !options.measured.empty()))
    return usage("--format " + options.format, "it is a picture of one plan, without what was measured",
                 "name one plan and leave --measured out, or write a page");
  GP_TRY_VOID(check_output(options));
  GP_TRY(const std::vector<ReportedPlan> plans, load_plans(options));
  for (const ReportedPlan& plan : plans) {
    const std::string file = plan_file_of(plan.name);
    GP_TRY_VOID(check_output(options, {&file, 1}));
    GP_TRY_VOID(check_output(options, files_read(plan.pipeline)));
  }
  if (options.format == "html") return files::write_file(options.output, report_page(plans));
  const std::string picture =
      options.format == "dot" ? stage_dot(plans.front().pipeline) : stage_svg(plans.front().pipeline);
  if (picture.empty())
    return Diagnostic{.code = Code::kLimitExceeded,
                      .origin = ModelText(plans.front().name),
                      .message = "it has more than 200 stages, which no picture shows readably",
                      .hint = "use --format dot, or html, which lists them"};
  return files::write_file(options.output, picture);
}

}  // namespace

int run_report(const Options& options) {
  const Status written = write_report(options);
  if (!written) return report_problems(options, "report", written.problems());
  if (options.json) print_json("report", JsonObject().add("file", options.output), {});
  else std::cout << "wrote " << Terminal::encode_text(options.output).str() << "\n";
  return 0;
}

}  // namespace graphpipe::driver
