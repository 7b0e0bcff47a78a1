#pragma once
// Writes the folder of a plan.

#include <string>

#include "driver/pipeline.h"

namespace graphpipe::driver {

/// Generates the programs into `folder`, with plan, weights and manifest; with `bundle` also the runtime's sources.
/// Errors: those of code generation and of the disk.
Status generate_folder(const Pipeline& pipeline, const std::string& folder, bool bundle);

}  // namespace graphpipe::driver
