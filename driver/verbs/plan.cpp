// graphpipe plan: what is decided.

#include "files/plan.h"

#include <iostream>

#include "driver/cli/commands.h"
#include "driver/cli/output_path.h"
#include "driver/cli/usage.h"
#include "driver/launch/process.h"
#include "driver/pipeline/pipeline.h"
#include "driver/pipeline/plan_profile.h"
#include "driver/report/plan_report.h"
#include "driver/report/report.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {
int run_plan(const Options& options) {
  if (const Status output = check_output(options); !output) return report_problems(options, "plan", output.problems());
  if (options.foreign.is_foreign()) return run_plan_profile(options);
  if (options.model.model.empty())
    return report_problems(options, "plan", {usage("model", "no model is named", "add the ONNX file to plan")});
  catch_interrupts();
  Result<Pipeline> pipeline = make_pipeline(options);
  if (!options.output.empty()) pipeline = with_digest(std::move(pipeline));
  if (!pipeline) return report_problems(options, "plan", pipeline.problems());
  report_notes(options, pipeline->model.notes);
  if (!options.output.empty()) {
    const Status spared = check_output(options, files_read(*pipeline));
    if (!spared) return report_problems(options, "plan", spared.problems());
    const Status written = files::write_plan(options.output, pipeline->plan);
    if (!written) return report_problems(options, "plan", written.problems());
  }
  if (options.json) print_json("plan", plan_json(*pipeline), pipeline->model.notes, pipeline->complete);
  else std::cout << plan_text(*pipeline);
  return end_code(pipeline->complete);
}

}  // namespace graphpipe::driver
