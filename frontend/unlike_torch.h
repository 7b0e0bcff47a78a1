#pragma once
// Losses that PyTorch's exporter writes otherwise than PyTorch computes them.

#include "frontend/lowering.h"
#include "frontend/model.h"

namespace graphpipe::frontend {

/// Adds what is found: an error where losses by the export are refused, else a warning. multilabel_margin_loss counts
/// what stands behind the first -1 of the labels as further labels 0: its calls tell of it.
void report_unlike_torch(const GraphBody& body, bool refuses_losses, Diagnostics& notes);

}  // namespace graphpipe::frontend
