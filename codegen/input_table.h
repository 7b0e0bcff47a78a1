#pragma once
// data.txt: the requirements on the inputs and labels that the stages read (wire/data_table.h).

#include "codegen/cut_stages.h"
#include "codegen/source_file.h"
#include "ir/schedule.h"

namespace graphpipe::codegen {

/// Whether gradients are computed in float16, so that a run scales its losses.
bool has_gradients_in_fp16(const ir::Graph& graph);

SourceFile write_input_table(const ir::Graph& graph, const IdMap<ir::StageId, StageCut>& cuts,
                             const ir::StageGraph& stages, const ir::Schedule& schedule);

}  // namespace graphpipe::codegen
