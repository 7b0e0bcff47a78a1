#pragma once
// What the optimiser of PyTorch's exporter writes beside a tensor that it has computed: the names of all values that it
// was computed from, parameters, constants and those in between.

#include <string>
#include <string_view>
#include <vector>

namespace graphpipe::frontend {

/// The key of the note in the metadata of the value.
inline constexpr std::string_view kFoldingNote = "pkg.onnxscript.optimizer.folded_from";

/// Reads "['exp', 'layer.a_log', 'val_38']", as Python prints names. Empty for text of another form.
std::vector<std::string> parse_names(std::string_view text);

/// Whether a value's metadata may be such a note: no other metadata of values are kept.
bool may_be_folding_note(std::string_view metadata);

/// What torch.export named a value after: "unsqueeze" of "unsqueeze_12".
std::string_view call_of_value(std::string_view value);

}  // namespace graphpipe::frontend
