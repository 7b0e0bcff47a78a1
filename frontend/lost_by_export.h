#pragma once
// What an exporter has lost of a module's parameters: their names, their ties, what it folded into others.

#include <string>
#include <vector>

#include "frontend/parameters.h"

namespace graphpipe::frontend {

/// Names that no module assigns: created by an optimiser that transposed, merged or folded weights.
bool is_anonymous(const std::string& name);

/// What is known of a file's tensors once it is decided which train.
struct DecidedTensors {
  std::vector<ParameterDecision> decisions;
  /// Named, but read as no weight of a layer, and not trained.
  std::vector<ModelText> unread;
  /// Without a name and not trained, but scaling or shifting values as parameters of layers do.
  std::vector<ir::ParamId> folded;
  /// Tables of single numbers that a file without a signature looks up: taken for buffers, and not trained.
  std::vector<ModelText> numbers;
  /// Of normalisations with fixed statistics, which a file without a signature adds and multiplies: taken for buffers.
  std::vector<ModelText> fixed;
  /// Tables of sines and cosines. In a file without a signature taken for buffers, and not trained; else parameters, of
  /// which the file does not say that they are fixed.
  std::vector<ModelText> waves;
  /// Trained in a file without a signature, though neither a layer's slot nor the name says so.
  std::vector<ModelText> guessed;
};

/// Adds notes and warnings on what is lost. Errors, where the context refuses losses, for what trains in another way
/// than the module does: statistics and normalisations that were folded away, and ties that were parted.
void report_losses(const ir::Graph& graph, const ParameterContext& context, const DecidedTensors& tensors,
                   Diagnostics& notes);

}  // namespace graphpipe::frontend
