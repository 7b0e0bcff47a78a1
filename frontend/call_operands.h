#pragma once
// Which argument of a PyTorch call an operand of its nodes stands for.

#include <cstdint>
#include <optional>
#include <string_view>

#include "frontend/exported_call.h"

namespace graphpipe::frontend {

/// What the operand is, as seen from the argument: the same tensor, its transpose, or a vector with further axes of
/// size 1.
enum class OperandForm : uint8_t { kSame, kTransposed, kWithAxes };

struct CallOperand {
  size_t argument = 0;
  OperandForm form = OperandForm::kSame;
};

/// For weights, biases and statistics of layers, and for tensors that are indexed; nullopt for other operands.
std::optional<CallOperand> call_operand(const ExportedCall& call, const OnnxNode& node, size_t input);

/// Which argument of the call of a product is its bias; nullopt for other calls.
std::optional<size_t> bias_argument(std::string_view target);

/// MatMul, Gemm, Conv, ConvTranspose.
bool is_product(const OnnxNode& node);

/// Which argument of the call of a linear layer, addmm or a convolution is its weight; nullopt for other calls.
std::optional<size_t> weight_argument(std::string_view target);

/// Whether an argument or a value is named as what torch.export makes of a constant of the program: "%ones_1".
bool is_constant_maker(std::string_view name);

}  // namespace graphpipe::frontend
