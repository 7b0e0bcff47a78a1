#pragma once
// Parts that a module computes without gradients: torch.export makes code of its own of what stands under
// torch.no_grad(), or under torch.autocast(), and the exporter puts its calls among the others. The trace of such a
// call is a line of that code: File "<eval_with_key>.42", line 5, in forward: tanh =
// torch.ops.aten.tanh.default(linear).

#include "frontend/parameter_rules.h"
#include "frontend/parameters.h"
#include "support/diagnostic.h"

namespace graphpipe::frontend {

/// Reports values of such parts that would train, though the module may give them no gradient. Under no_grad() the code
/// names parameters as the signature does, under autocast() by numbers (arg3_1): an error, if `refuses_losses`, for the
/// former, nothing for the latter, and a warning where the code names none. What is detached, as graphpipe.export does
/// with the results, and what is computed of frozen parameters, trains in no case.
/// Needs: nodes in the order of their values.
void report_without_gradient(const GraphBody& body, const ExportSignature& signature, const ParameterRules& rules,
                             bool refuses_losses, Diagnostics& notes);

}  // namespace graphpipe::frontend
