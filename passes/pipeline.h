#pragma once
// The passes in order, with the reason for each one's place, and the function that runs them.

#include <functional>
#include <span>
#include <string_view>

#include "passes/pass.h"

namespace graphpipe::passes {

struct PassEntry {
  std::string_view name;
  /// What it does and why it is placed there.
  std::string_view description;
  Result<ir::Graph> (*run)(ir::Graph, const PassContext&) = nullptr;
};

/// From an imported graph to one with forward, input-gradient and weight-gradient nodes.
std::span<const PassEntry> training_pipeline();

struct PipelineOptions {
  /// The last pass to run; empty for all.
  std::string_view stop_after;
  /// Called after each pass with the graph it left; may be empty.
  std::function<void(const PassEntry&, const ir::Graph&, Seconds)> observe;
};

/// Runs the passes, each followed by the verifier and by check_types. Errors: those of the passes; kUsage if stop_after
/// names no pass.
Result<ir::Graph> run_pipeline(ir::Graph graph, const PassContext& context, const PipelineOptions& options = {});

}  // namespace graphpipe::passes
