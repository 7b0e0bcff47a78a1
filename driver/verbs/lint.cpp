// graphpipe lint: every problem at once, and what training the model would mean.

#include <iostream>

#include "cost/price.h"
#include "driver/cli/commands.h"
#include "driver/pipeline/mixing.h"
#include "driver/pipeline/model_source.h"
#include "driver/report/report.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {

int run_lint(const Options& options) {
  Diagnostics notes;
  if (options.training.loss.empty()) {
    const Result<frontend::Imported> imported = import_model(options.model);
    if (!imported) return report_problems(options, "lint", imported.problems());
    notes = imported->notes;
  } else {
    const Result<TrainingGraph> training = make_training_graph(options.model, options.training, options.plan.policy);
    if (!training) return report_problems(options, "lint", training.problems());
    notes = training->notes;
    const auto priced = cost::price(training->graph, ir::equal_devices(1), {.batch = Samples(options.training.batch)});
    if (!priced) return report_problems(options, "lint", priced.problems());
    for (Diagnostic& note : mixing_notes(training->graph, *priced)) notes.push_back(std::move(note));
  }
  bool warned = false;
  for (const Diagnostic& note : notes) warned = warned || note.severity == Severity::kWarning;
  if (options.json) {
    JsonObject object;
    object.add("problems", notes.size()).add("passed", !warned);
    print_json("lint", object, notes);
  } else {
    for (const Diagnostic& note : notes) std::cout << to_line(note) << "\n";
    std::cout << (warned ? "lint: there are warnings\n" : "lint: passed\n");
  }
  return warned ? wire::kExitCheckFailed : wire::kExitOk;
}

}  // namespace graphpipe::driver
