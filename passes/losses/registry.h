#pragma once
// The losses that GraphPipe knows.

#include "ir/model_spec.h"
#include "passes/losses/loss_def.h"

namespace graphpipe::passes {

/// All entries, in the order of the help text.
std::span<const LossDef* const> all_losses();
/// The entry of a kind, or null.
const LossDef* find_loss(std::string_view name);

/// How a loss is written: "cross_entropy:OUTPUT,LABEL[,ignore=N][,axis=N]".
std::string loss_form(const LossDef& loss);
/// All forms, for help and hints: separated by commas, with "or" before the last.
std::string loss_forms();

/// Reads KIND:OUTPUT[,LABEL][,OPTION...]; a comma within a name is "%2C" (and "%2C" itself "%252C"). An empty text
/// means no loss. Errors (kUsage): an unknown kind, a missing or superfluous name, a malformed or out-of-range number.
Result<ir::LossSpec> parse_loss(const std::string& text);
/// Whether the kind is known, and takes the label and the options: a plan file may ask for anything (kBadLoss).
Status check_loss(const ir::LossSpec& spec);
/// As parse_loss reads it.
std::string print_loss(const ir::LossSpec& spec);

}  // namespace graphpipe::passes
