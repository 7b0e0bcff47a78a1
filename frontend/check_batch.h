#pragma once
// Whether a model is valid for every batch size. Evidence to the contrary: shapes that differ from the symbolic ones at
// B or 2B samples, outputs whose declared batch axis has another size, and constants that contain the batch size of the
// export.

#include <functional>
#include <optional>
#include <vector>

#include "frontend/model.h"
#include "ir/graph.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// Infers the types of the whole graph again with the batch bound to `batch` samples, and to twice as many. They must
/// equal the graph's types at those sizes. Errors: kBatchNotFound, one for each node that differs although its inputs
/// do not.
Status check_two_batches(const ir::Graph& graph, Samples batch);

/// If the file declares that an output's axis is the batch, it must be. `symbol` is the batch's; `suspects` tells which
/// constants may contain it. Errors: kBatchNotFound, one for each output.
Status check_output_axes(const std::vector<ValueInfo>& declared_outputs, const ir::Graph& graph,
                         const std::string& symbol, std::string_view suspects);

/// In files of PyTorch's dynamo exporter, which writes the sizes that it traced: nothing may have one sample there
/// where the graph has the batch. An example of one sample leaves such places, with a 1 for the batch in whatever else
/// was computed from it, such as the divisor of a mean. `shape_of`: what the graph has for a value of the file, or
/// null. Errors: kBatchNotFound, of the first node with such an output.
Status check_traced_sample(const GraphBody& body, const std::function<const ir::Shape*(const std::string&)>& shape_of);

/// The number in a node's shapes that should be the batch: if sizes c * B and n must agree, n / c, provided it is more
/// than 1. For a Reshape, the target is compared with the number of elements of its input.
std::optional<int64_t> baked_batch(const std::vector<ir::Shape>& operands);

}  // namespace graphpipe::frontend
