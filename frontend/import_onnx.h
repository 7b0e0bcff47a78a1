#pragma once
// From an ONNX model to an operator graph.
//
// import_onnx reads an untrusted model file: every size is checked before it is used, external data are opened only
// inside the model's folder, and all problems are reported at once, each with the ONNX node's name, what was found and
// what to do. Weights are never copied: the graph's parameters record in which file, where and how long they are. The
// batch stays symbolic: a dimension of the graph is factor * B^power (ir/types.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/model_spec.h"
#include "ops/parameter_role.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// Guards against malicious files. A model that exceeds one of them is rejected with kLimitExceeded.
struct Limits {
  int64_t file_bytes = int64_t{1} << 40;
  /// The file without its weights and comments, which is what is parsed into objects.
  int64_t structure_bytes = int64_t{256} << 20;
  /// Total number of sub-messages and strings.
  int64_t items = 8'000'000;
  int64_t nodes = 500'000;
  int64_t tensors = 500'000;
  /// Nested messages; a plain model has 8 levels, each nested If or Loop adds 4.
  int depth = 64;
  /// Nodes after inlining local functions.
  int64_t expanded_nodes = 1'000'000;
  /// Iterations of one loop, and nodes of the iterations of all loops: the size of programs is proportional to them.
  int64_t iterations = 4096, unrolled_nodes = 100'000;
  /// Total number of elements of constants that replace operators, such as the weights of a Resize.
  int64_t constant_elements = int64_t{1} << 27;
  /// Bytes of all weights together.
  int64_t weight_bytes = int64_t{1} << 44;
};

/// Where ONNX's library runs, which crashes on some models: in this process, as fuzzing may need; in a separate
/// process; or in one process shared by many models, for single-threaded programs that read thousands.
enum class Isolation : uint8_t { kNone, kProcess, kSharedProcess };

struct ImportRequest {
  /// Which file, and how it is read; the frontend ignores the loss.
  ir::ModelSpec spec;
  Limits limits;
  Isolation isolation = Isolation::kProcess;
};

using ops::ParameterRole;
std::string_view role_name(ParameterRole role);

/// One line of the decision list that is printed and stored.
struct ParameterDecision {
  ir::ParamId param;
  ModelText name;
  std::vector<ModelText> aliases;
  /// By the input slots that read it.
  ParameterRole role = ParameterRole::kConstant;
  bool trainable = false;
  /// Why: "PARAMETER in the exporter's signature", "weight of a MatMul", "frozen by pattern 'txt.*'", ...
  std::string reason;
};

struct Imported {
  ir::Graph graph;
  /// Warnings and notes: repairs, ties, nodes that mix samples, what the exporter lost.
  Diagnostics notes;
  std::vector<ParameterDecision> parameters;
  /// The model file and the external data files, for digests; in order of first use.
  std::vector<std::string> files;
  /// Of the data files, what the graph may depend on (TensorSource::outside_constants).
  std::vector<ir::FileRange> outside_constants;
  /// The symbol that became the batch, or empty where a fixed first dimension was re-bound.
  ModelText batch_symbol;
  /// The fixed batch that was re-bound; 0 where the batch was a symbol.
  int64_t traced_batch = 0;
};

/// Whether what the export has left out, and differences that change a training, are errors: if a training is requested
/// and
/// --accept is not given.
bool refuses_losses(const ir::ModelSpec& spec);

/// Reads, checks and lowers the model. On failure: all problems found.
Result<Imported> import_onnx(const ImportRequest& request);
/// The same for the bytes of a file that is, or could be, at the path of the spec.
Result<Imported> import_onnx(const ImportRequest& request, std::string_view file);

}  // namespace graphpipe::frontend
