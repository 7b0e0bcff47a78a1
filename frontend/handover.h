#pragma once
// What the process that runs ONNX's library hands back: the model or the problems. It has read a hostile file with code
// that may have been led astray, so nothing that it says is believed before it is checked.

#include <string>
#include <string_view>

#include "support/result.h"

namespace graphpipe::frontend {

struct Handover {
  /// The serialised model; empty where there are problems.
  std::string model;
  Diagnostics notes, problems;
};

std::string encode_handover(const Handover& handover);
/// Nullopt where the bytes are not what encode_handover makes: a code that does not exist, text that is no plain
/// ASCII, neither a model nor problems.
std::optional<Handover> decode_handover(std::string_view bytes);

}  // namespace graphpipe::frontend
