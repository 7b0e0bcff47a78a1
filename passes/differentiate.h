#pragma once
#include "passes/pass.h"

namespace graphpipe::passes {

/// Appends the gradient nodes of the loss: after this the graph holds the forward (F), input-gradient (I) and
/// weight-gradient (W) nodes of a training step, and its ids are stable.
///
/// - The gradient of an input with batch kind none is phase W, all else I; what an I node reads is I.
/// - Each reader's contribution to the gradient of a value is computed by a node that serves that reader (an Identity
///   where the rule only passes a gradient on). Contributions are added in descending order of the reader's id by
///   Add nodes with sums_gradient_of set, so the bits do not depend on how stages are cut later.
/// - Only where a trainable parameter lies upstream. A frozen part gets no backward and saves nothing.
/// - gradient_shares lists, in node order, one W value per use of a trainable parameter.
///
/// A trainable parameter that the loss does not depend on becomes frozen, with a note. Without a loss output the graph
/// is returned unchanged.
/// Errors: nothing to train or no path from it to the loss (kUntrainable); an op without the gradient that is needed
/// (kUnsupportedOp).
Result<ir::Graph> differentiate(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
