#pragma once
// The ONNX importer as a fuzz target: models as seeds, and a mutator that changes models as models.

#include <string>
#include <string_view>
#include <vector>

#include "tests/support/dice.h"

namespace graphpipe::tests {

/// `lint` and `plan` up to the search. With GRAPHPIPE_FUZZ_IN_PROCESS set, ONNX's library runs in this process: its
/// crashes show what check_nodes could refuse by name.
void run_onnx(std::string_view input);

/// Small models of every family of operators, with local functions, bodies of If and a Loop, and one exported model.
std::vector<std::string> onnx_seeds();

/// Another model: nodes, operands, attributes, types, shapes, functions and bodies are changed, moved, copied from
/// other seeds. Input that is no model comes back as it is.
std::string mutate_onnx(std::string_view input, Dice& dice);

}  // namespace graphpipe::tests
