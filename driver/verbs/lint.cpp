// graphpipe lint: every problem at once, and what training the model would mean.

#include <algorithm>
#include <iostream>

#include "cost/price.h"
#include "driver/cli/commands.h"
#include "driver/pipeline/model_source.h"
#include "driver/pipeline/model_spec.h"
#include "driver/pipeline/parameter_bytes.h"
#include "driver/pipeline/scope_notes.h"
#include "driver/report/report.h"
#include "wire/exit_codes.h"

namespace graphpipe::driver {

namespace {

Status check_weights(const Options& options, const frontend::Imported& imported, const ir::Graph& graph) {
  return check_finite_weights(graph, {.model = imported.files.front(), .trusted_root = options.model.trusted_root});
}

}  // namespace

int run_lint(const Options& options) {
  Diagnostics notes;
  if (options.training.loss.empty()) {
    const Result<frontend::Imported> imported = import_model(options);
    if (!imported) return report_problems(options, "lint", imported.problems());
    const Status finite = check_weights(options, *imported, imported->graph);
    if (!finite) return report_problems(options, "lint", finite.problems());
    notes = imported->notes;
  } else {
    const Result<ir::ModelSpec> spec = model_spec(options);
    if (!spec) return report_problems(options, "lint", spec.problems());
    const Result<TrainingGraph> training = make_training_graph(options, *spec);
    if (!training) return report_problems(options, "lint", training.problems());
    const Status finite = check_weights(options, training->imported, training->graph);
    if (!finite) return report_problems(options, "lint", finite.problems());
    notes = training->notes;
    const auto priced = cost::price(
        training->graph, ir::equal_devices(1),
        {.batch = Samples(options.training.batch), .scopes = scopes_of(*spec), .one_sample = spec->one_sample});
    if (!priced) return report_problems(options, "lint", priced.problems());
    for (Diagnostic& note : scope_notes(training->graph, *priced, nullptr)) notes.push_back(std::move(note));
  }
  notes = one_of_each_kind(notes);
  const auto warnings = std::ranges::count(notes, Severity::kWarning, &Diagnostic::severity);
  if (options.json) {
    JsonObject object;
    object.add("warnings", int64_t{warnings}).add("notes", static_cast<int64_t>(std::ssize(notes) - warnings));
    print_json("lint", object.add("passed", warnings == 0), notes);
  } else {
    for (const Diagnostic& note : notes) std::cout << to_line(note) << "\n";
    if (warnings > 0) std::cout << "lint: " << warnings << (warnings == 1 ? " warning\n" : " warnings\n");
    else std::cout << "lint: passed\n";
  }
  return warnings > 0 ? wire::kExitCheckFailed : wire::kExitOk;
}

}  // namespace graphpipe::driver
