#pragma once
// From the model file to the graph that everything else works on: import, loss, gradients.

#include <string>

#include "driver/cli/options.h"
#include "frontend/import_onnx.h"
#include "ir/plan.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Reads the model as the options say. Errors: those of the import; kUsage for flags that do not fit together.
Result<frontend::Imported> import_model(const ModelOptions& options);

/// Parses a --bind flag: NAME=SIZE, or NAME=batch. Errors: kUsage.
Result<frontend::SymbolBinding> parse_binding(const std::string& flag);

/// The text of a --parameters file; empty for an empty path. Errors: kUnreadableFile.
Result<std::string> read_parameter_file(const std::string& path);

/// Digest over the model file and its external data.
Result<std::string> model_digest(const frontend::Imported& imported);

/// A model that is ready to be planned: its graph holds the loss and all gradients (for a policy that only runs
/// forwards the model's outputs, and the loss where one is named) and never changes again.
struct TrainingGraph {
  ir::Graph graph;
  frontend::Imported imported;  // its graph has been moved out
  std::string digest;
  Diagnostics notes;
};

/// Whether the policy of this name trains nothing; false for unknown names.
bool runs_forwards_only(const std::string& policy);

/// The mode of BatchNorm: what the flag says; without it that of training, or of evaluation where nothing is trained.
std::string batch_norm_mode(const ModelOptions& model, const std::string& policy);

/// Imports, attaches the loss and differentiates, as far as the policy needs it. Without a loss flag: kBadLoss, naming
/// the outputs, unless the policy only runs forwards.
Result<TrainingGraph> make_training_graph(const ModelOptions& model, const TrainingOptions& training,
                                          const std::string& policy);
/// The same, by what a plan says about itself and the model that lies at `path`.
Result<TrainingGraph> make_training_graph(const ir::Plan& plan, const std::string& path);

}  // namespace graphpipe::driver
