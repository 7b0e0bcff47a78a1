#pragma once
// The files of a generated folder that hold its weights: data files of the model that are taken as they are, without a
// copy (wire/weight_parts.h), and one safetensors file of all others.

#include <set>
#include <string>
#include <vector>

#include "driver/pipeline/parameter_bytes.h"
#include "ir/graph.h"
#include "support/result.h"
#include "wire/manifest.h"
#include "wire/weight_parts.h"

namespace graphpipe::driver {

/// The parameters whose bytes in external data are those that programs read.
struct SharedWeights {
  /// Data files of the model; file n of the parts.
  std::vector<std::string> files;
  std::vector<wire::WeightPart> parts;
  std::set<ir::ParamId> params;
};

/// What is to be said of a folder that was written; no errors.
struct FolderNotes {
  Diagnostics notes;
};

/// Left out are elements that the file packs or that do not lie at a multiple of their width, and files of which
/// parameters are less than half: whoever starts a program reads the whole file for its digest. Errors:
/// kUnreadableFile.
Result<SharedWeights> find_shared_weights(const ir::Graph& graph, const WeightOrigin& origin);

/// What write_weight_files writes, as the manifest names it.
std::vector<std::string> weight_paths(const SharedWeights& shared);

/// Copies each data file; or, where `origin` asks for links, gives it a further name in the folder (a hard link), if
/// neither the file system nor another owner of the file stands against it. Writes the other parameters, and adds all
/// files to the manifest. Nothing else of the folder may have these names. Returns a note per file that was copied and
/// not to be, or is large. Errors: kEnvironment; those of reading the weights.
Result<FolderNotes> write_weight_files(const std::string& folder, const ir::Graph& graph, const WeightOrigin& origin,
                                       const SharedWeights& shared, wire::Manifest& manifest);

}  // namespace graphpipe::driver
