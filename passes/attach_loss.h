#pragma once
#include "passes/pass.h"

namespace graphpipe::passes {

/// Makes the loss of one micro-batch the last output. Of the model's own outputs, those that the loss needs are kept,
/// or all if nothing is trained. The loss is the sum over its counted positions, times the input of role kLossScale,
/// which the runtime sets to 1/N of the whole step (docs/semantics.md, section 4). It also states how N follows from
/// the data (Graph::loss). A loss that adds up means over different labels has a scale for each. Summed over
/// micro-batches this is the full batch's loss, and so are its gradients.
///
/// The label is an input of the model if there is one of that name, otherwise a new input of role kLabel whose shape
/// follows from the output: the same (mse, bce), or without the class axis (cross entropy). The class axis is axis 1 of
/// [B,C] and [B,C,H,W]; for three axes it is determined by the label's shape or the operator that computed the logits
/// ([B,T,C] from a matrix product, [B,C,T] from a convolution). Logits whose leading axis is T*B are treated as the
/// rows of [B,T].
///
/// Notes: a final Softmax or Sigmoid below a loss that applies its own.
/// Errors (kBadLoss): a name that is not an output, shapes that do not fit, an ambiguous class axis.
Result<ir::Graph> attach_loss(ir::Graph graph, const PassContext& context);

}  // namespace graphpipe::passes
