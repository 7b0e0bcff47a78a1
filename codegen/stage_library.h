#pragma once
// The functions of one stage as C++ files of at most kMaxOpsPerFile ops. Layers that longer functions repeat are
// blocks, which all stages share.

#include <string>
#include <vector>

#include "codegen/block_table.h"
#include "codegen/slot_layout.h"
#include "codegen/source_file.h"

namespace graphpipe::codegen {

inline constexpr size_t kMaxOpsPerFile = 100;

/// Which functions the stage has.
struct StageFunctions {
  bool forward = false, input_gradient = false, weight_gradient = false;
};
StageFunctions functions_of(const StageCut& cut);

/// Whether the stage has nodes that compute something else when the model is evaluated: it then has a separate function
/// for that, in addition to its forward.
bool evaluates_otherwise(const ir::Graph& graph, const StageCut& cut);

/// Whether its passes add up over the samples of a micro-batch (StageEntry::exchanges_sums).
bool exchanges_sums(const ir::Graph& graph, const StageCut& cut);

/// "stages/stage3".
std::string stage_folder(ir::StageId stage);

struct StageTextOptions {
  /// The comment that opens every file.
  std::string first_line;
  /// If set, the functions measure the time of their steps.
  MarkTable* marks = nullptr;
  /// Whether the functions of the backward tell which gradients are complete: replicas sum them meanwhile.
  bool tells_gradients = false;
};

/// functions.h and the definitions.
std::vector<SourceFile> write_stage_functions(const ir::Graph& graph, ir::StageId stage, const StageCut& cut,
                                              const SlotLayout& layout, const StageTextOptions& options,
                                              BlockTable& blocks);

}  // namespace graphpipe::codegen
