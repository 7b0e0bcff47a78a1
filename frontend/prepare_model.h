#pragma once
// From the bytes of the wire scan to a checked model of the internal opset. ONNX's library does much of it, with code
// that was not written for hostile files, so it runs in a process of its own.

#include <string>

#include "frontend/import_onnx.h"
#include "frontend/model.h"

namespace graphpipe::frontend {

struct Prepared {
  Model model;
  /// The outputs as the file declares them; inference puts numbers in the place of symbols.
  std::vector<ValueInfo> declared_outputs;
  Diagnostics notes;
};

/// Needs: bytes of scan_wire (stripped, within limits). Ensures: a model of the internal opset without local functions,
/// checked by check_model and check_nodes; where the file's opset is newer than the internal one it keeps that opset.
/// Where the library crashes or exceeds `limits`, the error names the first node with which it does.
Result<Prepared> prepare_model(const std::string& stripped, size_t slot_count, const Limits& limits,
                               Isolation isolation);

}  // namespace graphpipe::frontend
