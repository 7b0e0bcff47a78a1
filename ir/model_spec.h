#pragma once
// What is planned, as data: the command line and plan files are parsed into it once, and the frontend, the passes and
// the prices read it.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ir/attributes.h"
#include "ir/plan_graph.h"
#include "support/text.h"
#include "wire/optimizers.h"

namespace graphpipe::ir {

/// The loss that is asked for; its kinds are the entries of passes/losses/registry.cpp. Without a kind nothing is
/// trained.
struct LossSpec {
  std::string kind;
  /// The graph output that the loss reads.
  ModelText output;
  /// An input of the model, or a new one; empty where the kind takes none.
  ModelText label;
  /// Integers by name, as the kind's entry lists them: "ignore", "axis"; a word without a value is 1.
  Attributes options;
  bool operator==(const LossSpec&) const = default;
};

/// Which statistics BatchNormalization nodes use that have running ones. Exporters lose the mode, so it is the user's
/// choice: the batch's (the running ones are updated), the running ones (which stay as they are), what the model file
/// says (of the batch where it trains), or those of each micro-batch, as GPipe does.
enum class BatchNormMode : uint8_t { kTrain, kEval, kFile, kMicroBatch };
/// "train", "eval", "file", "micro-batch".
std::string_view batch_norm_name(BatchNormMode mode);
std::optional<BatchNormMode> batch_norm_of_name(std::string_view name);

/// Gives a symbolic dimension of the inputs a size; size 0 says that the symbol is the batch.
struct SymbolBinding {
  ModelText symbol;
  int64_t size = 0;
  bool operator==(const SymbolBinding&) const = default;
};

/// In which floating-point type a model of float32 computes where it may (passes/lower_precision.h). Its parameters
/// stay float32.
enum class Precision : uint8_t { kFloat32, kBFloat16, kFloat16 };
/// "float32", "bf16", "fp16".
std::string_view precision_name(Precision precision);
std::optional<Precision> precision_of_name(std::string_view name);
DType compute_type(Precision precision);

struct ModelSpec {
  /// The model file, and a second folder that its data may lie in: symbolic links in the paths of external data are
  /// followed if they end inside it. A plan file holds the first, absolute or relative to its folder, and never the
  /// second.
  ModelText path, trusted_root;
  std::vector<SymbolBinding> bindings;
  /// The whole file is one sample: no dimension of it is the batch. Its inputs get a batch axis in front, or have one
  /// of the fixed size 1 there; every micro-batch is one sample.
  bool one_sample = false;
  /// Whether to train a file although the exporter has left out what changes the training, and the file shows it; else
  /// such a file is refused where a loss is given.
  bool accepts_losses = false;
  /// Name patterns ('*' and '?') of parameters that are not to be trained.
  std::vector<ModelText> freeze;
  /// Text of a parameter file: lines "PATTERN train|freeze|tie|split" or "PATTERN padding ROW", later lines win, and
  /// over `freeze`; '#' starts a comment.
  ModelText parameter_rules;
  /// Whether these lines hold what the module says of all its parameters (files/module_facts.h): none is warned of then
  /// that may be meant not to train. No plan file holds it.
  bool says_what_trains = false;
  BatchNormMode batch_norm = BatchNormMode::kTrain;
  /// Whether Dropout nodes with a ratio above 0 drop, those that the exporter switched off too; else none does.
  bool dropout = false;
  LossSpec loss;
  /// A name of wire/optimizers.h.
  std::string optimizer = wire::kDefaultOptimizer;
  /// The samples that a loss compares with each other: all of the batch, or those of each micro-batch.
  SampleScope contrastive = SampleScope::kBatch;
  Precision precision = Precision::kFloat32;
  bool operator==(const ModelSpec&) const = default;
};

}  // namespace graphpipe::ir
