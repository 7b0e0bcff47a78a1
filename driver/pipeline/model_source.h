#pragma once
// From the model file to the graph that everything else works on: import, loss, gradients.

#include <map>
#include <string>

#include "driver/cli/options.h"
#include "frontend/import_onnx.h"
#include "ir/model_spec.h"
#include "support/result.h"

namespace graphpipe::driver {

/// Reads the model as the options say. Errors: those of the import; kUsage for flags that do not fit together.
Result<frontend::Imported> import_model(const Options& options);

/// What plans and profiles know their model by: SHA-256 over the model file, the sizes of its data files, and the small
/// integers and truth values in these, which may decide shapes and branches. Weights may be hundreds of gigabytes and
/// change with every training; no plan depends on them. Errors: kUnreadableFile.
Result<std::string> model_digest(const frontend::Imported& imported);
/// SHA-256 of each of Imported::files. Reads all weights. Errors: kUnreadableFile.
Result<std::map<std::string, std::string>> file_digests(const frontend::Imported& imported);

/// A model that is ready to be planned: its graph holds the loss and all gradients (for a policy that only runs
/// forwards the model's outputs, and the loss where one is named) and never changes again.
struct TrainingGraph {
  ir::Graph graph;
  frontend::Imported imported;  // its graph has been moved out
  /// model_digest; empty until asked for (with_digest).
  std::string digest;
  Diagnostics notes;
};

/// Imports, attaches the loss and differentiates, or, forwards only, leaves the model's outputs. Without a loss:
/// kBadLoss, naming the outputs, unless it runs forwards only.
Result<TrainingGraph> make_training_graph(const ir::ModelSpec& spec, bool forward_only);
/// The same, where --batchnorm and --dropout are checked against what the model has (kUsage).
Result<TrainingGraph> make_training_graph(const Options& options, const ir::ModelSpec& spec);

}  // namespace graphpipe::driver
