#pragma once
// What users are told of the parameters that an exporter's optimiser had taken tensors from (restore_parameters.h).

#include "frontend/restore_parameters.h"
#include "support/diagnostic.h"

namespace graphpipe::frontend {

/// Notes; and warnings, of what the file does not tell whole.
void note_restored(const Restoration& restored, Diagnostics& notes);

}  // namespace graphpipe::frontend
