#pragma once
// The steps that ONNX's library performs: check each node, inline local functions, infer shapes, convert to the
// internal opset, expand operators without an entry. Its exceptions end here; its crashes do not (see prepare_model).

#include <cstdint>
#include <functional>
#include <string_view>

#include "frontend/import_onnx.h"

namespace graphpipe_onnx {
class ModelProto;
}

namespace graphpipe::frontend {

enum class LibonnxStep : uint8_t { kNone, kCheck, kInline, kInfer, kConvert, kExpand };
/// What the library does in this step, in a form that can follow "while": "it infers shapes".
std::string_view step_name(LibonnxStep step);

/// The version of the standard operators that the model imports, or 0.
int64_t main_opset(const graphpipe_onnx::ModelProto& model);

/// Converts the model to the internal opset, without local functions. `at` is told each step before it begins. Adds to
/// `notes` what the library could not do and the import does not need. Needs: a model that check_model and check_nodes
/// accept. Throws std::bad_alloc.
Status run_libonnx_steps(graphpipe_onnx::ModelProto& model, const Limits& limits,
                         const std::function<void(LibonnxStep)>& at, Diagnostics& notes);

}  // namespace graphpipe::frontend
