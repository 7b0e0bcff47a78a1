#pragma once
// data.txt: what the inputs and labels that the stages read must be (wire/data_table.h).

#include "codegen/cut_stages.h"
#include "codegen/source_file.h"

namespace graphpipe::codegen {

SourceFile write_input_table(const ir::Graph& graph, const IdMap<ir::StageId, StageCut>& cuts, Samples batch);

}  // namespace graphpipe::codegen
