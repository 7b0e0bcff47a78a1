#pragma once
// Writes the folder of a plan.

#include <string>

#include "driver/launch/weight_files.h"
#include "driver/pipeline/pipeline.h"

namespace graphpipe::driver {

/// What else goes into the folder.
struct FolderExtras {
  /// The runtime's sources.
  bool bundle = false;
  /// Hard links to the model's data files, in place of copies.
  bool link_weights = false;
  /// The profiling program; its plan has one stage.
  bool profile = false;
};

/// Generates the programs into `folder`, with plan, weights and manifest. Returns notes of what was written.
/// Errors: those of code generation and of the disk.
Result<FolderNotes> generate_folder(const Pipeline& pipeline, const std::string& folder, const FolderExtras& extras);

}  // namespace graphpipe::driver
