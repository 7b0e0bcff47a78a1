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

struct ModelDigest {
  /// Over the model file and its external data.
  std::string whole;
  /// SHA-256 of each of Imported::files.
  std::map<std::string, std::string> files;
};
/// Reads all files, each once.
Result<ModelDigest> model_digest(const frontend::Imported& imported);

/// A model that is ready to be planned: its graph holds the loss and all gradients (for a policy that only runs
/// forwards the model's outputs, and the loss where one is named) and never changes again.
struct TrainingGraph {
  ir::Graph graph;
  frontend::Imported imported;  // its graph has been moved out
  /// Empty until asked for (with_digests): reading all weights may take longer than planning.
  ModelDigest digests;
  Diagnostics notes;
};

/// Imports, attaches the loss and differentiates, or, forwards only, leaves the model's outputs. Without a loss:
/// kBadLoss, naming the outputs, unless it runs forwards only.
Result<TrainingGraph> make_training_graph(const ir::ModelSpec& spec, bool forward_only);
/// The same, where --batchnorm and --dropout are checked against what the model has (kUsage).
Result<TrainingGraph> make_training_graph(const Options& options, const ir::ModelSpec& spec);

}  // namespace graphpipe::driver
