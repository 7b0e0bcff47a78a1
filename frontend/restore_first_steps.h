#pragma once
// Gives the first step of a recurrent cell its bias back, where an exporter's optimiser has computed it beforehand.
//
// Of linear(zeros, weight, bias), as the first step of nn.RNN and of the cells of torch.nn has it for a state of zeros
// and a batch that is fixed, PyTorch's default export keeps the result: the bias, once for each sample. Further steps
// read the parameters themselves, so the file has the bias to compare with. The weight has no part in the result, and
// gets no gradient from that step.

#include "frontend/restore_parameters.h"

namespace graphpipe::frontend {

/// Changes the body, and adds to what restore_parameters() has done, of which the nodes fit the body. Nothing changes
/// where the optimiser's note names more than zeros and the two parameters, or where the elements are not the bias's.
void restore_first_steps(GraphBody& body, const ExportSignature& signature, const ElementsOf& elements_of,
                         Restoration& restored);

}  // namespace graphpipe::frontend
