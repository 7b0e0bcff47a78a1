#pragma once
// The steps that libonnx does: parse, check each node against its schema, inline local functions, infer shapes, convert
// to the internal opset. Its exceptions end here.

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
/// checked by check_model; where the file's opset is newer than the internal one it keeps that opset.
Result<Prepared> prepare_model(const std::string& stripped, size_t slot_count, const Limits& limits);

}  // namespace graphpipe::frontend
