#pragma once
// From the bytes of the wire scan to a checked model of the internal opset. ONNX's library does much of the work, with
// code that was not written for untrusted files, so it runs in a separate process.

#include <string>

#include "frontend/import_onnx.h"
#include "frontend/model.h"

namespace graphpipe::frontend {

struct Prepared {
  Model model;
  /// The outputs as the file declares them; inference replaces symbols by numbers.
  std::vector<ValueInfo> declared_outputs;
  Diagnostics notes;
};

/// Needs: bytes of scan_wire (stripped, within limits). Ensures: a model of the internal opset without local functions,
/// checked by check_model and check_nodes; if the file's opset is newer than the internal one it keeps that opset. If
/// the library crashes or exceeds `limits`, the error names the first node with which it does.
Result<Prepared> prepare_model(const std::string& stripped, size_t slot_count, const Limits& limits,
                               Isolation isolation);

}  // namespace graphpipe::frontend
