#pragma once
// The bytes of a parameter, wherever they lie: a range of a file, a fill value, or the graph itself.

#include <map>
#include <set>
#include <string>

#include "files/safetensors.h"
#include "ir/graph.h"

namespace graphpipe::driver {

/// Where an import found the weights, so that they are opened again under its rules.
struct WeightOrigin {
  std::string model;
  std::string trusted_root;
  /// SHA-256 of each file, as the import read it; for write_weight_files.
  std::map<std::string, std::string> digests = {};
  /// Whether a folder gets hard links to the model's data files, in place of copies.
  bool link_data_files = false;
};

/// Hands the range of a file that holds weights to the sink in pieces. Errors: as send_parameter_bytes.
Status send_file_range(const ir::FileRange& range, const WeightOrigin& origin, const files::ByteSink& sink);

/// Hands all bytes of the parameter to the sink in pieces; a file is read piece by piece, never as a whole.
/// Errors: kUnreadableFile (missing, shorter than when it was imported), kUnsafePath; what the sink returns.
Status send_parameter_bytes(const ir::Graph& graph, ir::ParamId param, const WeightOrigin& origin,
                            const files::ByteSink& sink);

/// What weights.safetensors says of the parameter.
files::TensorToWrite tensor_of_parameter(const ir::Graph& graph, ir::ParamId param);

/// Writes the parameters but for those left out under their names, with the values that the model file holds.
Status write_weights(const std::string& path, const ir::Graph& graph, const WeightOrigin& origin,
                     const std::set<ir::ParamId>& left_out = {});

/// Whether write_weights has made the file.
bool are_written_weights(const std::string& path);

/// Reads all parameters and buffers; constants may hold infinities, as masks do. Errors (kBadModel): each that holds an
/// infinity or NaN, with the first place, at most kMaxProblems; those of reading.
Status check_finite_weights(const ir::Graph& graph, const WeightOrigin& origin);

}  // namespace graphpipe::driver
