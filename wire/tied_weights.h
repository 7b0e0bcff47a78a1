#pragma once
// Weights that modules share: one parameter of several names, of which a file may have any.

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "support/result.h"

namespace graphpipe::wire {

/// The bytes of the file's tensor of this name; nothing where it has none.
using TensorBytes = std::function<std::optional<std::span<const std::byte>>(std::string_view name)>;

/// The first of a parameter's names under which a file has it; nothing where it has it under none. PyTorch's writers of
/// safetensors keep a weight that modules share under one of its names, not always the same.
/// Errors: kMalformedFile where two of the names have other bytes.
Result<std::optional<std::string>> find_tied_weight(const std::vector<std::string>& names, const TensorBytes& bytes_of);

}  // namespace graphpipe::wire
