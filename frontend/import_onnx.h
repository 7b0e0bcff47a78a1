#pragma once
// ONNX model in, operator graph out.
//
// import_onnx reads a model file that nobody vouches for: every size is checked before it is used, external data are
// opened only inside the model's folder, and all problems are reported at once, each with the ONNX node's name, what
// was found and what to do. Weights are never copied: the graph's parameters say in which file, where and how long
// they are. The batch stays symbolic: a dimension of the graph is factor * B^power (ir/types.h).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/model_spec.h"
#include "support/result.h"

namespace graphpipe::frontend {

/// Guards against hostile files. A model beyond one of them is refused with kLimitExceeded.
struct Limits {
  int64_t file_bytes = int64_t{1} << 40;
  /// The file without its weights and comments, which is what is parsed into objects.
  int64_t structure_bytes = int64_t{256} << 20;
  /// Sub-messages and strings, all of them.
  int64_t items = 8'000'000;
  int64_t nodes = 500'000;
  int64_t tensors = 500'000;
  /// Nested messages; a plain model has 8 levels, each nested If or Loop adds 4.
  int depth = 64;
  /// Nodes after inlining local functions.
  int64_t expanded_nodes = 1'000'000;
  /// Iterations of one loop, and nodes of the iterations of all: programs grow with them.
  int64_t iterations = 4096, unrolled_nodes = 100'000;
  /// Numbers of all constants that operators are written out as, such as the weights of a Resize.
  int64_t constant_elements = int64_t{1} << 27;
  /// Bytes of all weights together.
  int64_t weight_bytes = int64_t{1} << 44;
};

/// Where ONNX's library runs, which crashes on some models: in this process, as fuzzing may want it; in a process of
/// its own; or in one for many models, where a program reads thousands and not from several threads.
enum class Isolation : uint8_t { kNone, kProcess, kSharedProcess };

struct ImportRequest {
  /// Which file, and how it is read; the loss is not the frontend's.
  ir::ModelSpec spec;
  Limits limits;
  Isolation isolation = Isolation::kProcess;
};

/// What a tensor of the file is for, by the input slots that read it.
enum class ParameterRole : uint8_t { kWeight, kBias, kScale, kEmbedding, kTable, kStatistic, kConstant };
std::string_view role_name(ParameterRole role);

/// One line of the decision list that is printed and stored.
struct ParameterDecision {
  ir::ParamId param;
  ModelText name;
  std::vector<ModelText> aliases;
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
  /// The symbol that became the batch, or empty where a fixed first dimension was re-bound.
  ModelText batch_symbol;
  /// The fixed batch that was re-bound; 0 where the batch was a symbol.
  int64_t traced_batch = 0;
};

/// Whether what the exporter has left out, and what changes a training, is an error: where one is asked for and
/// --accept is not.
bool refuses_losses(const ir::ModelSpec& spec);

/// Reads, checks and lowers the model. On failure: all problems found.
Result<Imported> import_onnx(const ImportRequest& request);
/// The same for the bytes of a file that lies, or might lie, at the path of the spec.
Result<Imported> import_onnx(const ImportRequest& request, std::string_view file);

}  // namespace graphpipe::frontend
