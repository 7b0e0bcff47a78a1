#pragma once
// Does a model hold for every batch? What says that it does not: shapes that come out otherwise at B or 2B samples,
// outputs whose declared batch axis has another size, and constants that hold the batch of the export.

#include <optional>
#include <vector>

#include "frontend/model.h"
#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// Infers the types of the whole graph again with the batch bound to `batch` samples, and to twice as many. They must
/// be what the graph's types are at those sizes.
/// Errors: kBatchNotFound, one for each node that differs while what it reads does not.
Status check_two_batches(const ir::Graph& graph, Samples batch);

/// Where the file says that an output's axis is the batch, it must be. `symbol` is the batch's; `suspects` are words on
/// which constants may hold it.
/// Errors: kBatchNotFound, one for each output.
Status check_output_axes(const std::vector<ValueInfo>& declared_outputs, const ir::Graph& graph,
                         const std::string& symbol, std::string_view suspects);

/// The number that a node's shapes hold where the batch should stand: where sizes c * B and n meet, n / c, if that is
/// more than 1. A Reshape's target meets the number of its input's elements.
std::optional<int64_t> baked_batch(const std::vector<ir::Shape>& operands);

}  // namespace graphpipe::frontend
