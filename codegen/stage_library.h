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

/// "stages/stage3".
std::string stage_folder(ir::StageId stage);

/// functions.h and the definitions. `first_line` is the comment that opens every file. With `marks` the functions
/// measure the time of their steps.
std::vector<SourceFile> write_stage_functions(const ir::Graph& graph, ir::StageId stage, const StageCut& cut,
                                              const SlotLayout& layout, const std::string& first_line,
                                              BlockTable& blocks, MarkTable* marks = nullptr);

}  // namespace graphpipe::codegen
