#pragma once
// What the process that runs ONNX's library returns: the model or the problems. It has read an untrusted file with code
// that may have been exploited, so nothing that it returns is used before it is checked.

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
/// Nullopt if the bytes are not valid output of encode_handover: an unknown code, text that is not plain ASCII, neither
/// a model nor problems.
std::optional<Handover> decode_handover(std::string_view bytes);

}  // namespace graphpipe::frontend
