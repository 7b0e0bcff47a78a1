#pragma once
// products.txt: the matrix products and convolutions of a plan's programs whose kernels are worth measuring
// (wire/product_table.h).

#include "codegen/cut_stages.h"
#include "codegen/source_file.h"
#include "ir/schedule.h"

namespace graphpipe::codegen {

/// For all stages, at every number of samples that an item of the schedule has.
SourceFile write_products(const ir::Graph& graph, const IdMap<ir::StageId, StageCut>& cuts,
                          const ir::Schedule& schedule, int threads);

}  // namespace graphpipe::codegen
