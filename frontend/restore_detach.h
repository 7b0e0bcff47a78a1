#pragma once
// Values that a module detaches, so that no gradient passes them. An exporter's optimiser takes the Identity for which
// they are exported out of the file; the calls that read them still do: add(%linear, %detach). Where these are out of
// the file as well (clone), or have no metadata there (split), nothing says that a value was detached.

#include "frontend/parameters.h"
#include "support/diagnostic.h"

namespace graphpipe::frontend {

/// Puts an Identity that was exported from a detach (exported_call.h) before the readers of such a value. Where the
/// file does not say which operand of a node it is, an error if `refuses_losses`, else a warning.
void restore_detach(GraphBody& body, const ExportSignature& signature, bool refuses_losses, Diagnostics& notes);

}  // namespace graphpipe::frontend
