#pragma once
// A stage's constant table: runtime::StageEntry with its rows.

#include <map>
#include <string>

#include "codegen/slot_layout.h"
#include "codegen/source_file.h"
#include "codegen/table_text.h"

namespace graphpipe::codegen {

/// Trainable parameters that several stages hold, numbered in parameter order, with their stages.
struct WeightGroups {
  std::map<ir::ParamId, int> group_of;
  std::vector<std::vector<ir::StageId>> stages;
};
WeightGroups weight_groups(const ir::Graph& graph, const IdMap<ir::StageId, StageCut>& cuts);

/// The text of a runtime::DataRow for a model input, whose items are stored in `slot`.
std::string data_row(const ir::Graph& graph, const ir::Input& input, int slot, TensorTable& tensors);

/// table.cpp of the stage's folder.
SourceFile write_stage_table(const ir::Graph& graph, ir::StageId stage, const StageCut& cut, const SlotLayout& layout,
                             const WeightGroups& groups, const std::string& first_line);

}  // namespace graphpipe::codegen
